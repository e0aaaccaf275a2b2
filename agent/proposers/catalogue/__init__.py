"""Propose known ideas: catalogue.py chooses, evidence.py estimates their gains, files.py reads their files.

It imports nothing: `status` reads the queue, whose entries have the form of an idea's file.
"""
