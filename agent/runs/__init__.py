"""Make one run of one attempt: train, score, audit, each in its own process.

Follow one run: jobs.py says what a worker can be asked to do; execute.py does it, and finds out whether the script or
the machine is to blame where it fails or is slow. runner.py makes the folder of each process and runs it in its
sandbox. train.py trains there and reads what the script left; score.py has scorer.py score the weights, and audit.py
says which of the losses another process has to confirm. fixed.py and probe.py ask the machine before all of that.
"""
