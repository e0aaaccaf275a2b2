"""Write the report of nights as one HTML file: what was tried, what helped, and how sure that is.

Start reading with page.py, which puts the page together. drawings.py has its charts, head.py and rows.py its words.
"""
