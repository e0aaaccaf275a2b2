"""Lay the facts of nights out for other programs: as CSV, JSON lines or Parquet, a row an attempt, and for Trackio."""

import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agent.errors import MachineError, NightError
from agent.experiment import Attempt
from agent.files import check_plain, replaced_folder, write_plain
from agent.invocation import command_for
from agent.records.place import Place
from agent.records.record import Record
from agent.records.results import FORMULA, TEXT_MARK
from agent.text import harmless_lines
from agent.view.answer import Measured, plain
from agent.view.run_files import curve

Row = dict[str, Any]
OF_NIGHT = ("device", "budget_s", "protocol", "sigma_bpb")  # columns about the night
OF_ATTEMPT = ("parent", "title", "proposer", "words", "started", "commit")
OF_PROPOSAL = ("hypothesis", "without", "merges")
KEYS = ("tag", "attempt")  # these are in each row, and first: an earlier export is recognised by them
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
    _check_out(format, path, is_ours=_is_export(format, path))
    write_plain(path, FORMATS[format](rows))


def _check_out(format: str, out: Path, *, is_ours: bool) -> None:
    """Raise NightError where an export cannot be written, or would replace anything but an earlier one."""
    if not out.parent.is_dir():
        raise NightError(f"{out.parent} is not a folder; make it first, or name another with --out")
    if out.exists() and not is_ours:
        raise NightError(f"{out} holds something other than an export for {format}; name another with --out")


def _is_export(format: str, file: Path) -> bool:
    """Return whether a file holds an earlier export, or nothing."""
    with suppress(OSError, ValueError):  # Arrow's own errors are ValueErrors
        if format == "parquet" and file.stat().st_size:
            return tuple(pq.read_schema(file).names[: len(KEYS)]) == KEYS
        content = file.read_bytes()
        return not content or content.startswith((b"tag,attempt,", b'{"tag": '))
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
        return json.dumps(value)  # ASCII has no invisible character
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
        return not pa.types.is_struct(pa.array(values).type)  # each attempt turned other dials
    return False


FORMATS = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}


# ---- Trackio ---------------------------------------------------------------------------------------------------------

MARK = "nightshift-export.json"
PARTS = 1000  # Trackio numbers the points of a curve: one step is a thousandth of the budget
LOGGED_WORDS = ("title", "proposer", "status", "kind", "parent", "seeds", "started", "commit")
LOGGED_NUMBERS = ("val_bpb", "gain_bpb", "sure", "memory_gb", "params", "tokens_s", "spent_s")
ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")  # an export leaves this machine by no way


def write_trackio(place: Place, folder: Path, nights: Sequence[Record]) -> str:
    """Write nights as a store of Trackio, by its public API; return the command that shows it.

    A project is a night, and a run an attempt with its dials and curves. The API has no way to say when something was
    logged, so a chart by time shows the time of the export; one by step shows thousandths of the budget. Raise
    MachineError without the extra.
    """
    is_ours = (folder / MARK).is_file() or (folder.is_dir() and not any(folder.iterdir()))
    _check_out("trackio", folder, is_ours=is_ours)
    with replaced_folder(folder) as aside:
        (aside / MARK).write_text(json.dumps([night.tag for night in nights]) + "\n", encoding="utf-8")
        os.environ |= {"TRACKIO_DIR": str(aside.resolve()), "TRACKIO_STORAGE_MODE": "sqlite"}  # read by the import
        for name in ELSEWHERE:
            os.environ.pop(name, None)
        try:
            import trackio
        except ImportError as error:
            install = command_for("trackio")
            raise MachineError(f"the export for Trackio needs trackio; install it with: {install}") from error
        every = [(night, attempt) for night in nights for attempt in night.attempts]
        for night, attempt in every:
            words = {name: getattr(attempt, name) for name in LOGGED_WORDS} | {
                "night": night.tag,
                "device": night.device,
            }
            dials = {name: value for name, value in attempt.outline.dials.items() if name in night.turned_dials}
            config = json.loads(json.dumps(words | dials))
            with redirect_stdout(io.StringIO()):  # Trackio prints how to look at each run
                trackio.init(
                    _project(night), f"{attempt.number:04d}", config=config,
                    embed=False, auto_log_gpu=False, auto_log_cpu=False,
                )  # fmt: skip
                for step, metrics in sorted(_points(place, night, attempt).items()):
                    trackio.log(metrics, step)
                trackio.finish()
    first = f" --project {_project(nights[0])}" if len(nights) == 1 else ""
    return f"TRACKIO_DIR={folder} trackio show{first}"


def _project(night: Record) -> str:
    """Return the name of a night's project, without dots, which Trackio would drop: v1.1 and v11 are two nights."""
    return night.tag.replace(".", "--")


def _points(place: Place, night: Record, attempt: Attempt) -> dict[int, dict[str, float]]:
    """Return step → metrics of an attempt: its losses by the share of the budget, and what is known at the end."""
    points: dict[int, dict[str, float]] = defaultdict(dict)
    for run in attempt.runs:
        for fraction, loss in () if run.confirmation else curve(place, night.tag, attempt.number, run.seed):
            points[round(PARTS * fraction)][f"loss/seed{run.seed}"] = loss
    measured = Measured.of(night, attempt)
    metrics = {name: getattr(measured, name) for name in LOGGED_NUMBERS}
    points[PARTS] |= {name: float(value) for name, value in metrics.items() if value is not None}
    return points
