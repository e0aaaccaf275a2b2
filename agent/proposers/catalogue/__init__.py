"""Known ideas: catalogue.py proposes them, evidence.py estimates what each would bring, files.py reads their files.

It imports nothing: `status` reads the queue, whose entries have the form of an idea's file.
"""
