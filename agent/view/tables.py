"""Lay the facts of nights out for other programs, as CSV or JSON lines: a row an attempt."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.files import check_plain, write_plain
from agent.records.record import Record
from agent.records.results import FORMULA, TEXT_MARK
from agent.text import harmless_lines
from agent.view.answer import Measured, plain

Row = dict[str, Any]
OF_NIGHT = ("device", "budget_s", "protocol", "sigma_bpb")  # columns about the night
OF_ATTEMPT = ("parent", "title", "proposer", "words", "started", "commit")
OF_PROPOSAL = ("hypothesis", "without", "merges")
STARTS = (b"tag,attempt,", b'{"tag": ')  # each row begins with these keys: an earlier export is recognised by them
DIAL = "dial."  # start of the names of columns that hold dials' values


# ---- rows ------------------------------------------------------------------------------------------------------------


def attempts(nights: Sequence[Record]) -> list[Row]:
    """Return a row for each attempt: its night, all its facts, and a column for each dial that any of them turned."""
    names = sorted(frozenset().union(*(night.turned_dials for night in nights)))
    rows = [
        {"tag": night.tag, "attempt": attempt.number}
        | {name: getattr(attempt, name) for name in OF_ATTEMPT}
        | {name: getattr(attempt.proposal, name) for name in OF_PROPOSAL}
        | plain(Measured.of(night, attempt))
        | {"runs": attempt.runs, "decisions": attempt.decisions}
        | {"is_best": attempt.number == night.best_number}
        | {name: getattr(night, name) for name in OF_NIGHT}
        | {f"{DIAL}{name}": attempt.outline.dials.get(name) for name in names}
        for night in nights
        for attempt in night.attempts
    ]
    return [plain(row) for row in rows]


# ---- files -----------------------------------------------------------------------------------------------------------


def write(format: str, path: Path, rows: Sequence[Row]) -> None:
    """Write rows of attempts in a format of FORMATS, with runs and decisions in each row; in CSV these are JSON.

    An earlier export is replaced; raise NightError for any other file.
    """
    check_plain(path)
    if not path.parent.is_dir():
        raise NightError(f"{path.parent} is not a folder; make it first, or name another with --out")
    if path.exists() and path.stat().st_size and not path.read_bytes().startswith(STARTS):
        raise NightError(f"{path} holds something other than an export; name another file with --out")
    write_plain(path, FORMATS[format](rows))


def _csv(rows: Sequence[Row]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    """Make a text fit for a terminal and a spreadsheet, which takes some texts for formulas, also behind a blank."""
    if isinstance(value, list | dict):
        return json.dumps(value)  # ASCII has no invisible character
    if not isinstance(value, str):
        return value
    safe = harmless_lines(value)
    return TEXT_MARK + safe if FORMULA.match(safe.lstrip()) else safe


def _jsonl(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


FORMATS = {"csv": _csv, "jsonl": _jsonl}
