"""Carry a night to another machine in one file, or pack it away to make room: pack.py writes it, unpack.py reads it.

The file is a tar.gz of the night's folder and of a git bundle with its commits. Its first member, contents.json, says
what night it is, so that it can be listed without unpacking it.
"""
