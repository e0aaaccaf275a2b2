"""The built-in search: it turns the dials of the script and needs no key.

Start reading with search.py; curves.py is its model of the scores so far; acquisition.py has that of crashes, and
chooses places to try by both.
"""
