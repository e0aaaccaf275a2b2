"""Where machine-written code runs: the sandbox, its limits, and the processes that watch it.

Start reading with box.py: what a process sees, and which sandbox this machine has. process.py starts a command in it
under the harness's clock. The network is denied by bubblewrap's namespaces (box.py) or Landlock's rules (landlock.py),
with a filter of system calls around either (seccomp.py), on a Mac by seatbelt.py. SECURITY.md lists all promises.
"""
