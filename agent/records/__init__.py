"""What is kept: journal, results.tsv (in ledger/), checksums, and where they lie.

Start reading with journal.py, in which every step of a night stands before the next begins. ledger/ renders
results.tsv from it, shipped.py a record that can be committed, and past.py reads what earlier nights measured.
"""
