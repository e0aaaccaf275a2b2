"""Where machine-written code runs: boxes, limits, and the processes that watch it."""
