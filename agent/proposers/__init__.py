"""Where ideas come from: the catalogue, the search, a language model, a coding agent, the queue.

Start reading with source.py, which says what a source is. registry.py lists them, and mix.py chooses among them. How an
idea becomes an attempt is in agent/night/ideas.py. A new source needs its own file and one line in registry.py.
"""
