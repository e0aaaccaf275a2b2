"""Where the time of a training step goes.

Start reading with profile.py, which compares two short runs of the script. profiler.py runs inside them, and phases.py
computes from its notes. of_night.py measures the phases once for the authors of a night. steps.py takes the step in
several ways for `nightshift doctor --verify`, to compare losses and memory.
"""
