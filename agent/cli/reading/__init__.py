"""The commands that only read nights.

Start reading with the file of a command, status.py for one. which.py finds the night that a command is about.
"""
