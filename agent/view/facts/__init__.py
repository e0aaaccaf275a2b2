"""State what happened in a night, as plain values: everything that shows a night shows these same facts.

Start reading with nouns.py, the facts as records. read.py makes them of any night.
"""
