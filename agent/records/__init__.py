"""What is kept: journal, results.tsv, checksums, and where they lie.

Start reading with journal.py, in which every step of a night stands before the next begins. ledger.py renders
results.tsv from it.
"""
