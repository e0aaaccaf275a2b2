"""Where the time of a training step goes.

Start reading with profile.py, which compares two short runs of the script. profiler.py runs inside the second, and
phases.py computes from its notes; a night measures the phases once, too, for its authors. steps.py takes the step in
several ways for `nightshift doctor --verify`, to compare losses.
"""
