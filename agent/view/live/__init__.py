"""The live view of a night: verdicts that scroll, and below them a panel of a few lines that follows the night.

Start reading with screen.py, what a person sees. follow.py shows it of a night that runs in another process.
"""
