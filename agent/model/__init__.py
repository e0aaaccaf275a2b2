"""A night's best model, taken out of the night: as a folder that other programs load, or to write text with it.

Start reading with folder.py, which writes the folder, and sampling.py, which writes text.
"""
