"""Write the report of a night as one HTML file: what was tried, what helped, and how sure that is.

Start reading with page.html, which says it all; page.py gives it what it needs, charts.py draws, writer.py writes the
page beside a night.
"""
