"""A coding agent as a source of ideas: any command that edits the script in a throwaway clone.

Start reading with command.py; clone.py lays out what the agent sees and takes the edit back.
"""
