"""The report page, live: a server on this machine that shows a night while it runs, and changes nothing."""
