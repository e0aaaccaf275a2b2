"""One run of one attempt: train, score, audit, each in its own process.

Start reading with jobs.py, what a worker can be asked to do, and execute.py, which does it, and finds out whether the
script or the machine is to blame where it fails or is slow. runner.py makes the folder of each process; train.py,
score.py and audit.py follow in the order in which a run meets them.
"""
