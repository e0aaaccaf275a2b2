"""Lay the facts of nights out as rows, one an attempt, and write them as CSV, JSON lines or Parquet."""

import csv
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agent.errors import NightError
from agent.files import check_plain, write_plain
from agent.records.record import Record
from agent.records.results import FORMULA, TEXT_MARK
from agent.text import harmless_lines
from agent.view.answer import Measured, plain

Row = dict[str, Any]
OF_NIGHT = ("device", "budget_s", "protocol", "sigma_bpb")  # in each row of an attempt
OF_ATTEMPT = ("parent", "title", "source", "words", "started", "commit")
OF_PROPOSAL = ("hypothesis", "without", "merges")
KEYS = ("tag", "attempt")  # in each row, and first: by them an earlier export is known
DIAL = "dial."  # before the names of the columns that hold the values of dials


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
        | {"is_incumbent": attempt.number == night.incumbent}
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
        raise NightError(f"{path.parent} is not a folder; make it first, or name another file with --out")
    if path.exists() and path.stat().st_size and not _is_export(format, path):
        raise NightError(f"{path} holds something other than an export of this format; name another file with --out")
    write_plain(path, FORMATS[format](rows))


def _is_export(format: str, file: Path) -> bool:
    with suppress(OSError, ValueError):  # Arrow's own errors are ValueErrors
        if format == "parquet":
            return tuple(pq.read_schema(file).names[: len(KEYS)]) == KEYS
        return file.read_bytes().startswith((b"tag,attempt,", b'{"tag": '))
    return False


def _csv(rows: Sequence[Row]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    """Make a text fit for a terminal and a spreadsheet, which takes some texts for formulas, also behind a blank."""
    if isinstance(value, list | dict):
        return json.dumps(value)  # in ASCII: no character in it is invisible
    if not isinstance(value, str):
        return value
    safe = harmless_lines(value)
    return TEXT_MARK + safe if FORMULA.match(safe.lstrip()) else safe


def _jsonl(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _parquet(rows: Sequence[Row]) -> bytes:
    mixed = {name for name in rows[0] if not _is_column([row[name] for row in rows])}
    texts = [{name: json.dumps(row[name]) for name in mixed if not isinstance(row[name], str | None)} for row in rows]
    table = pa.Table.from_pylist([row | text for row, text in zip(rows, texts, strict=True)])
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    return bytes(out.getvalue().to_pybytes())


def _is_column(values: Sequence[Any]) -> bool:
    """Return whether a column of Arrow can hold values as they are; else it holds them as JSON."""
    with suppress(pa.ArrowException):
        return not pa.types.is_struct(pa.array(values).type)  # of dials, of which each attempt turned others
    return False


FORMATS = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}
