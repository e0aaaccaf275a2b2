"""Write rows as CSV, JSON lines or Parquet."""

import csv
import dataclasses
import io
import json
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from agent.errors import NightError
from agent.files import check_plain, write_plain
from agent.lab.hardware import write_atomically
from agent.records.results import FORMULA, TEXT_MARK
from agent.text import harmless_lines
from agent.view.export.rows import DIAL, PARTS, Row, flat, mapped, parts
from agent.view.facts.nouns import AttemptFacts, NightFacts

MARK = {b"nightshift": b"attempts"}  # in the metadata of a Parquet file
SIGN = 3  # columns at the beginning of a CSV, by which an earlier export of the same table is known


def write_csv(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one table of attempts, and beside it one of their runs and one of their decisions."""
    tables = {path: [flat(row) for row in rows]}
    tables |= {path.with_suffix(f".{kind}{path.suffix}"): list(parts(rows, kind)) for kind in PARTS}
    texts = {file: _csv(table) for file, table in tables.items() if table}
    for file in texts:
        check_replaceable(file, partial(_is_csv, list(tables[file][0])))
    for file, text in texts.items():
        write_plain(file, text)
    return tuple(texts)


def _csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: mapped(_cell, value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(text: str) -> str:
    """Make a text fit for a terminal and a spreadsheet, which takes some texts for formulas, also behind a blank."""
    safe = harmless_lines(text)
    return TEXT_MARK + safe if FORMULA.match(safe.lstrip()) else safe


def _is_csv(columns: Sequence[str], path: Path) -> bool:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])[:SIGN] == columns[:SIGN]


def write_jsonl(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one object a line for each attempt, with its runs and decisions in it."""
    check_replaceable(path, _is_jsonl)
    write_plain(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return (path,)


def _is_jsonl(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        first = json.loads(file.readline())
    return isinstance(first, dict) and {"tag", "attempt", "runs"} <= first.keys()


def write_parquet(path: Path, rows: Sequence[Row]) -> tuple[Path, ...]:
    """Write one row for each attempt, with its runs and decisions as lists in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_replaceable(path, _is_parquet)
    schema = _schema(rows)
    texts = {name for name in schema.names if name.startswith(DIAL) and schema.field(name).type == pa.string()}
    table = pa.Table.from_pylist([_typed(row, texts) for row in rows], schema=schema)
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    write_atomically(path.resolve(), memoryview(out.getvalue()))
    return (path,)


def _is_parquet(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return (pq.read_schema(path).metadata or {}).items() >= MARK.items()
    except pa.ArrowInvalid:
        return False


def check_replaceable(path: Path, is_export: Callable[[Path], bool]) -> None:
    """Raise NightError for a file that is there and is no earlier export of the same format."""
    check_plain(path)
    if not path.parent.is_dir():
        raise NightError(f"{path.parent} is not a folder; make it first, or name another file with --out")
    if not path.exists():
        return
    with suppress(OSError, ValueError, csv.Error):
        if path.stat().st_size == 0 or is_export(path):
            return
    raise NightError(f"{path} holds something other than an export of this format; name another file with --out")


# ---- types of Parquet's columns --------------------------------------------------------------------------------------


def _schema(rows: Sequence[Row]) -> Any:
    """Return the types of all columns; without them, a column of nothing but None would have none."""
    import pyarrow as pa

    hints = (
        {"tag": str, "attempt": int, "is_incumbent": bool} | get_type_hints(NightFacts) | get_type_hints(AttemptFacts)
    )
    columns: dict[str, Any] = {}
    for name in rows[0]:
        is_dial = name.startswith(DIAL)
        columns[name] = _type_of({type(row[name]) for row in rows} - {type(None)}) if is_dial else _type(hints[name])
    return pa.schema(list(columns.items()), metadata=MARK)


def _type(hint: Any) -> Any:
    """Return the type of a column whose values have this type in the facts."""
    import pyarrow as pa

    simple = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if hint in simple:
        return simple[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return _type(next(one for one in get_args(hint) if one is not type(None)))
    if get_origin(hint) is tuple:
        return pa.list_(_type(get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return pa.struct([(name, _type(one)) for name, one in get_type_hints(hint).items()])
    assert get_origin(hint) is Mapping, hint  # of dials, whose values may have any type: as JSON
    return pa.list_(pa.struct([("dial", pa.string()), ("before", pa.string()), ("after", pa.string())]))


def _type_of(found: set[type]) -> Any:
    """Return the type of a dial's column: numbers and truth values as such, anything else as JSON."""
    import pyarrow as pa

    if found == {bool}:
        return pa.bool_()
    if found == {int}:
        return pa.int64()
    return pa.float64() if found and found <= {int, float} else pa.string()


def _typed(row: Row, texts: Collection[str]) -> Row:
    """Return a row for Parquet: the turns of dials as a list of records, and the values in these columns as text."""
    turns = [{"dial": name, "before": json.dumps(a), "after": json.dumps(b)} for name, (a, b) in row["dials"].items()]
    return row | {"dials": turns} | {name: _as_text(row[name]) for name in texts}


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
