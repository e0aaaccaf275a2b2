"""Draw the facts of a night as Vega-Lite charts: pure functions of the facts, and one place that renders them.

Start reading with progress.py, the progress of a night; render.py makes pictures of what the others draw.
"""
