"""What is settled before a night's loop begins: its facts, its lock, its limits, and how a user stops it.

Start reading with night.py, which opens a night or refuses to.
"""
