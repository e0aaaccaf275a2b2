"""A night in one file: packed away beside the others, or carried to another machine. One format, one reader.

Start reading with writing.py, which packs, and reading.py, which unpacks. away.py and moving.py use them.
"""
