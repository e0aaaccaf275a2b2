"""The commands that take something out of a night: a record, a model, a table for other programs.

Start reading with the file of a command, best.py for one. taken.py finds the script of take.py, rerun.py runs for
replay.py.
"""
