"""What is kept: journal, results.tsv, git commits, checksums.

Start reading with journal.py, in which every step of a night stands before the next begins. ledger.py renders
results.tsv from it; repo.py makes commits without touching the user's working tree.
"""
