"""What is kept: journal, results.tsv, checksums, and where they lie.

Start reading with journal.py, in which every step of a night stands before the next begins. results.py renders
results.tsv, and shipped.py writes and reads a record that can be committed, and collects what earlier nights measured.
record.py holds all that is known of a night, from whichever of them reading.py has found, and summary.py sums it up.
"""
