"""Hold what the charts are made of: colours, words, scales, labels, and the outcomes of attempts.

Start reading with style.py, which puts charts together, and symbols.py, what each outcome looks like.
"""
