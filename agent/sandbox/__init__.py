"""Where machine-written code runs: the sandbox, its limits, and the processes that watch it.

Start reading with box.py: what a process sees, and which sandbox this machine has. process.py starts a command in it
under the harness's clock. SECURITY.md lists the promises that are kept here.
"""
