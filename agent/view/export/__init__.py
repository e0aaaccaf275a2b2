"""Tables of nights for other programs: CSV, Parquet and JSON lines, and the stores of TensorBoard and Trackio.

Start reading with rows.py, the tables, which tables.py writes. sessions.py is what trackers of experiments are given.
"""
