"""Git: commits that touch nothing the user works on, in the user's repository and in throwaway folders.

Start reading with repo.py: commits on a private index, refs that move by compare-and-swap. run.py is the one way in
which git is started.
"""
