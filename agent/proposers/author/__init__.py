"""The view of a night that every author of edits is given: in a prompt, as files in a clone, or on a terminal.

Start reading with pages.py, the whole view. Each other file makes one part of it, a pure function of the briefing. The
text that an author must not obey is quoted or fenced by excerpts.py.
"""
