"""Run machine-written code in a sandbox, under limits, and end all its processes."""
