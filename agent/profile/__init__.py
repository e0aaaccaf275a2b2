"""Where the time of a training step goes.

Start reading with profiler.py, which runs inside a short run of the script; phases.py computes from its notes. A night
measures the phases once, for its authors, and profile.py for `nightshift profile`.
"""
