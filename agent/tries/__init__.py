"""Edits that are tried one after another while their author does something else: the line, and who works through it.

Start reading with line.py, where tries wait, and worker.py, which takes them from there.
"""
