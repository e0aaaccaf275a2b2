"""How a night is shown: the page with its charts and its server, the live terminal, lines, tables, answers in JSON.

Start reading with records/record.py: every view draws that record, and what summary_of says of it. words.py and
terminal.py make lines of them, page/ the report, live.py the panel of a running night, answer.py what `--json` prints.
"""
