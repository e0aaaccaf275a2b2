"""How a night is shown: the facts that every view shares, charts, the page and its server, the live terminal, tables.

Start reading with facts/nouns.py: every view draws those records. terminal.py and status.py make lines of them, charts/
pictures, page/ the report, live/ the panel of a night that runs.
"""
