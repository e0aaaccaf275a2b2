"""Where ideas come from: the catalogue, the search, a language model, a coding agent, the queue, and the mix of them.

Start reading with registry.py, the table of all sources. A new source needs its own file and one line there.
"""
