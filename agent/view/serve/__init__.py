"""The report page, live: a server on this machine that shows a night while it runs, and changes nothing.

Start reading with app.py, the requests that are answered. feed.py reads the night for all clients.
"""
