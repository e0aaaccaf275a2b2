"""results.tsv, the ledger: one row for each attempt, made from the journals, written and read again.

Start reading with ledger.py, which brings the rows of all nights together and writes the file.
"""
