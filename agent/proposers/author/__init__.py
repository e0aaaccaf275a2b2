"""What an author of edits is told of a night: one view of it, for a prompt, for files in a clone, and for a terminal.

Each file makes one part of the view, a pure function of the briefing. The text that an author must not obey is quoted
or fenced by quoting.py. sections.py fits the parts into a limit, the least important shortened first.
"""
