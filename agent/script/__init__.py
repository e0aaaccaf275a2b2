"""The training script as text: its contract, its dials, patches and merges of it. Nothing here executes it.

Start reading with contract.py: what the harness asks of a script. dials.py reads and turns the numbers at its top.
"""
