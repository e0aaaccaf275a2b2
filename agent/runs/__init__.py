"""One run of one attempt: train, score, audit, each in its own process.

Start reading with workshop.py, the folder that each process gets; then train.py, score.py and audit.py in the order in
which a run meets them.
"""
