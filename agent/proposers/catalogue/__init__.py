"""Known ideas about the training script, tried without a language model: one patch an idea.

Start reading with catalogue.py, which proposes them. idea.py reads the files of agent/ideas/, applying.py makes an
idea's edit in the best script, and evidence.py says what is expected of each.
"""
