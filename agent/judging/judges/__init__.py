"""The judges: each decides, from the scores so far, which edits a night keeps.

Start reading with choice.py, the table of all judges; balanced.py is the one that a night has unless it is told.
"""
