"""Write nights as a store of Trackio: a project a night, a run an attempt with its dials and its curves."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from agent.errors import MachineError, NightError
from agent.experiment import Attempt, Run
from agent.files import replaced_folder
from agent.invocation import command_for
from agent.records.place import Place
from agent.records.record import Record
from agent.script.dials import Value
from agent.view.answer import Measured
from agent.view.run_files import curve
from agent.view.tables import settings

MARK = "nightshift-export.json"
PARTS = 1000  # of the budget: Trackio numbers the points of a curve, and a step is a thousandth
WORDS = ("title", "source", "status", "kind", "parent", "seeds", "started", "commit")
METRICS = ("val_bpb", "gain_bpb", "sure", "memory_gb", "params", "tokens_s", "spent_s")


def write_trackio(place: Place, folder: Path, nights: Sequence[Record]) -> str:
    """Write the store; return the command that shows it. Raise MachineError without the extra, or if it fails."""
    _check_replaceable(folder)
    with replaced_folder(folder) as aside:
        (aside / MARK).write_text(json.dumps({"export": "trackio", "nights": [night.tag for night in nights]}) + "\n")
        os.environ |= {"TRACKIO_DIR": str(aside.resolve()), "TRACKIO_STORAGE_MODE": "sqlite"}  # read by the import
        try:
            from trackio.sqlite_storage import SQLiteStorage
        except ImportError as error:
            install = command_for("trackio")
            raise MachineError(f"the export for Trackio needs trackio; install it with: {install}") from error
        dials = {night.tag: settings(night) for night in nights}
        every = [(night, attempt) for night in nights for attempt in night.attempts]
        console = Console(stderr=True)
        for night, attempt in track(
            every, "writing attempts", console=console, transient=True, disable=not console.is_terminal
        ):
            SQLiteStorage.bulk_log(**_run(place, night, attempt, dials[night.tag]), project=_project(night))
    first = f" --project {_project(nights[0])}" if len(nights) == 1 else ""
    return f"TRACKIO_DIR={folder} trackio show{first}"


def _project(night: Record) -> str:
    """Return the name of a night's project, without dots, which Trackio would drop: v1.1 and v11 are two nights."""
    return night.tag.replace(".", "--")


def _check_replaceable(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise NightError(f"{folder.parent} is not a folder; make it first, or name another with --out")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    with suppress(OSError, ValueError, TypeError, LookupError):
        if json.loads((folder / MARK).read_text())["export"] == "trackio":
            return
    raise NightError(f"{folder} holds something other than an export for trackio; name another folder with --out")


def _run(place: Place, night: Record, attempt: Attempt, dials: Mapping[int, Mapping[str, Value]]) -> dict[str, Any]:
    """Return what Trackio logs of an attempt: the losses by the share of the budget, and the metrics at the end."""
    began = {run.seed: _seconds(run.began or attempt.started) for run in attempt.runs}
    ended_s = max((began[run.seed] + run.spent_s for run in attempt.runs), default=0.0)
    records: dict[int, tuple[float, dict[str, float]]] = {}
    for run in attempt.runs:
        for fraction, loss in () if run.dawn else curve(place, night.tag, attempt.number, run.seed):
            point = records.setdefault(round(PARTS * fraction), (began[run.seed] + fraction * night.budget_s, {}))
            point[1][f"loss/seed{run.seed}"] = loss
    measured = Measured.of(night, attempt)
    metrics = {name: getattr(measured, name) for name in METRICS} | _of_dawn(attempt.runs)
    last = records.setdefault(PARTS, (ended_s or _seconds(attempt.started), {}))
    last[1].update({name: float(value) for name, value in metrics.items() if value is not None})
    facts = {name: getattr(attempt, name) for name in WORDS} | {"night": night.tag, "device": night.device}
    steps = sorted(records)
    return {
        "run": f"{attempt.number:04d}",
        "config": json.loads(json.dumps(facts | dict(dials[attempt.number]))),
        "steps": steps,
        "timestamps": [datetime.fromtimestamp(records[step][0], UTC).isoformat() for step in steps],
        "metrics_list": [records[step][1] for step in steps],
    }


def _of_dawn(runs: Sequence[Run]) -> dict[str, float]:
    scores = {
        "dawn_bpb": [run.val_bpb for run in runs if run.dawn and run.val_bpb is not None],
        "holdout_bpb": [run.holdout_bpb for run in runs if run.dawn and run.holdout_bpb is not None],
    }
    return {name: statistics.fmean(values) for name, values in scores.items() if values}


def _seconds(at: str) -> float:
    """Return seconds since 1970; 0 for a text that is no time."""
    with suppress(ValueError):
        return datetime.fromisoformat(at).timestamp()
    return 0.0
