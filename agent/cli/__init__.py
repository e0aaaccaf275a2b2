"""Answer the command line: options, and one function for each command.

Start reading with main.py: the commands, and the one place where an error becomes a sentence and an exit code.
"""
