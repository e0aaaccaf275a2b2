"""Take a night's best model out of the night: as a folder that other programs load, or to write text with it.

Start reading with best.py, which finds script and weights; folder.py writes the folder, and sampling.py text.
"""
