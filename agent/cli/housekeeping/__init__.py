"""Commands around nights: what begins a repository, what its nights take up, and what makes room.

Start reading with the file of a command. nights.py lists all nights; weights.py finds what may be deleted.
"""
