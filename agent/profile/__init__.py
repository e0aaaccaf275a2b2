"""Measure where the time of a training step goes.

Start reading with profiler.py, which runs inside a short run of the script; phases.py starts it, and computes from its
notes.
"""
