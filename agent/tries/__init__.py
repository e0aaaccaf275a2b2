"""Edits that are tried one after another while their author does something else: the line, and who works through it."""
