"""How a night is shown: terminal, tables, pictures, JSON.

Start reading with terminal.py, the morning's view; live/screen.py is what appears while a night runs.
"""
