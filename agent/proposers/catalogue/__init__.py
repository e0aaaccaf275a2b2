"""Known ideas about the training script, tried without a language model: one patch an idea.

Start reading with idea.py, which reads the files of ideas/; applying.py makes an idea's edit in the best script.
"""
