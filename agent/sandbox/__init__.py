"""Run machine-written code in a sandbox, within limits that other processes watch.

Start reading with sandboxes.py: which sandbox this machine has; places.py says what a process sees in it, and
in_memory.py holds these files in memory. process.py starts a command in it under the harness's clock. The network is
denied by bubblewrap's namespaces or Landlock's rules (landlock.py), with a filter of system calls around either
(seccomp.py), on a Mac by Seatbelt. SECURITY.md lists all promises.
"""
