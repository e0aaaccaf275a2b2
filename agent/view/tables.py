"""Lay the facts of nights out as rows, one an attempt, and write them as CSV, JSON lines or Parquet."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.errors import NightError
from agent.files import check_plain, write_plain
from agent.lab.hardware import write_atomically
from agent.records.record import Record
from agent.records.results import FORMULA, TEXT_MARK
from agent.script.dials import Value
from agent.text import harmless_lines
from agent.view.answer import Measured, plain

Row = dict[str, Any]
OF_NIGHT = ("device", "budget_s", "protocol", "sigma_bpb")  # in each row of an attempt
OF_ATTEMPT = ("parent", "title", "source", "words", "started", "commit")
OF_PROPOSAL = ("hypothesis", "without", "merges")
KEYS = ("tag", "attempt")  # in each row, and first: by them an earlier export is known
PARTS = ("runs", "decisions")
DIAL = "dial."  # before the names of the columns that hold the values of dials


# ---- rows ------------------------------------------------------------------------------------------------------------


def settings(night: Record) -> dict[int, dict[str, Value]]:
    """Return attempt → dial → value, for each dial that an attempt of the night has turned.

    An attempt has the values of its parent, apart from those that it turned. Attempt 0 has the values from which its
    descendants turned them.
    """
    values: dict[int, dict[str, Value]] = {}
    first: dict[str, Value] = {}
    for attempt in night.attempts:  # a parent comes before its children
        turned = night.turned.get(attempt.number, {})
        above = values.get(attempt.parent, {}) if attempt.parent is not None else {}
        first |= {name: before for name, (before, _) in turned.items() if name not in above.keys() | first}
        values[attempt.number] = above | {name: after for name, (_, after) in turned.items()}
    return {number: first | turned for number, turned in values.items()}


def attempts(nights: Sequence[Record]) -> list[Row]:
    """Return a row for each attempt: its night, all its facts, and a column for each dial that any of them turned."""
    dials = [(night, settings(night)) for night in nights]
    names = sorted({name for _, values in dials for turned in values.values() for name in turned})
    return [
        {"tag": night.tag, "attempt": attempt.number}
        | {name: plain(getattr(attempt, name)) for name in OF_ATTEMPT}
        | {name: plain(getattr(attempt.proposal, name)) for name in OF_PROPOSAL}
        | plain(Measured.of(night, attempt))
        | {"runs": plain(attempt.runs)}
        | {"decisions": [{"at": entry.at} | plain(entry.decision) for entry in attempt.decisions]}
        | {"is_incumbent": attempt.number == night.incumbent}
        | {name: plain(getattr(night, name)) for name in OF_NIGHT}
        | {f"{DIAL}{name}": plain(values[attempt.number].get(name)) for name in names}
        for night, values in dials
        for attempt in night.attempts
    ]


def _parts(rows: Sequence[Row], kind: str) -> Iterator[Row]:
    """Yield a row for each run, or each decision, of these attempts."""
    for row in rows:
        for part in row[kind]:
            yield {name: row[name] for name in KEYS} | _flat(part)


def _flat(part: Row) -> Row:
    """Return a record with the fields of those in it beside its own: `score.val_bpb`."""
    inner = {name: _flat(value) for name, value in part.items() if isinstance(value, dict)}
    own = {name: value for name, value in part.items() if name not in inner}
    return own | {f"{name}.{field}": value for name, fields in inner.items() for field, value in fields.items()}


# ---- files -----------------------------------------------------------------------------------------------------------


def write_csv(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one table of attempts, and beside it one of their runs and one of their decisions."""
    tables = {path: [{name: value for name, value in row.items() if name not in PARTS} for row in rows]}
    tables |= {path.with_suffix(f".{kind}{path.suffix}"): list(_parts(rows, kind)) for kind in PARTS}
    texts = {file: _csv(table) for file, table in tables.items() if table}
    for file in texts:
        _check_replaceable(file, lambda there: there.read_bytes().startswith(b"tag,attempt,"))
    for file, text in texts.items():
        write_plain(file, text)
    return tuple(texts)


def _csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(out, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Make a text fit for a terminal and a spreadsheet, which takes some texts for formulas, also behind a blank."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    safe = harmless_lines(value)
    return TEXT_MARK + safe if FORMULA.match(safe.lstrip()) else safe


def write_jsonl(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one object a line for each attempt, with its runs and decisions in it."""
    _check_replaceable(path, lambda there: there.read_bytes().startswith(b'{"tag": '))
    write_plain(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return (path,)


def write_parquet(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one row for each attempt, with its runs and decisions as lists in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_replaceable(path, lambda there: tuple(pq.read_schema(there).names[: len(KEYS)]) == KEYS)
    names = [name for name in rows[0] if name.startswith(DIAL)]
    mixed = {name for name in names if not _is_of_one_type([row[name] for row in rows])}
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_typed(row, mixed) for row in rows]), out, compression="zstd")
    write_atomically(path.resolve(), memoryview(out.getvalue()))
    return (path,)


def _is_of_one_type(values: Sequence[Any]) -> bool:
    """Return whether a column of Arrow can hold the values of a dial as they are."""
    types = {type(value) for value in values} - {type(None)}
    return types <= {int, float} or types in ({bool}, {str})


def _typed(row: Row, mixed: set[str]) -> Row:
    """Return a row for Arrow: the turns of dials as a list of records, and dials of several types as text."""
    turns: Mapping[str, Any] = row["dials"]
    dials = [{"dial": name, "before": json.dumps(a), "after": json.dumps(b)} for name, (a, b) in turns.items()]
    texts = {name: row[name] if isinstance(row[name], str | None) else json.dumps(row[name]) for name in mixed}
    return row | {"dials": dials} | texts


def _check_replaceable(path: Path, is_export: Callable[[Path], bool]) -> None:
    """Raise NightError for a file that is there and is no earlier export of the same format."""
    check_plain(path)
    if not path.parent.is_dir():
        raise NightError(f"{path.parent} is not a folder; make it first, or name another file with --out")
    if not path.exists():
        return
    with suppress(OSError, ValueError):  # pyarrow's own errors are ValueErrors
        if path.stat().st_size == 0 or is_export(path):
            return
    raise NightError(f"{path} holds something other than an export of this format; name another file with --out")
