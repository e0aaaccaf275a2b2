"""Tables of nights for other programs: CSV, Parquet and JSON lines, and the stores of TensorBoard and Trackio."""
