"""Show a night: as a page with charts, a live page, a live terminal, lines, tables, and answers in JSON.

Start reading with records/record.py: every view draws that record, and what summary_of says of it. words.py and
terminal.py make lines of them, live.py the panel of a running night, answer.py what `--json` prints. The report is
web/page.html, which says it all: page.py gives it what it needs, charts.py draws, writer.py writes it beside a night.
"""
