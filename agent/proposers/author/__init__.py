"""Tell every author of edits the same of a night: in a model's question, as an agent's file, or on the screen.

Start reading with pages.py, which fills the templates of prompts/. attempts.py and calls.py give the facts; excerpts.py
quotes the text that an author must not obey.
"""
