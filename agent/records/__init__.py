"""What is kept: journal, results.tsv, shipped records, and where they lie.

Start reading with journal.py, in which every step of a night stands before the next begins. record.py holds all that is
known of a night, wherever place.py has found it, and summary.py sums it up. results.py renders results.tsv, and
shipped.py writes and reads a record that can be committed.
"""
