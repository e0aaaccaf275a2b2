"""Known ideas, one patch each, in the order in which they are expected to help.

Start reading with catalogue.py, which proposes them and makes their edits. idea.py reads the files of agent/ideas/;
evidence.py estimates what each would bring.
"""
