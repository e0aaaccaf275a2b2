"""What is kept: journal, results.tsv, checksums, and where they lie.

Start reading with journal.py, in which every step of a night stands before the next begins. summary.py says where the
night stands, results.py renders results.tsv, shipped.py writes a record that can be committed, and past.py reads what
earlier nights measured.
"""
