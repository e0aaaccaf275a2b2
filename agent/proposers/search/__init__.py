"""The built-in search: it turns the dials of the script and needs no key.

Start reading with search.py, which chooses places to try; curves.py is its model of the scores so far.
"""
