"""Write nights as a store of Trackio, by its public API: a project a night, a run an attempt with its dials and curves.

The API has no way to say when something was logged, so a chart by time shows the time of the export; one by step shows
thousandths of the budget.
"""

import io
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from agent.errors import MachineError, NightError
from agent.experiment import Attempt
from agent.files import replaced_folder
from agent.invocation import command_for
from agent.records.place import Place
from agent.records.record import Record
from agent.view.answer import Measured
from agent.view.run_files import curve

MARK = "nightshift-export.json"
PARTS = 1000  # of the budget: Trackio numbers the points of a curve, and a step is a thousandth
WORDS = ("title", "source", "status", "kind", "parent", "seeds", "started", "commit")
METRICS = ("val_bpb", "gain_bpb", "sure", "memory_gb", "params", "tokens_s", "spent_s")
ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")  # an export leaves this machine by no way


def write_trackio(place: Place, folder: Path, nights: Sequence[Record]) -> str:
    """Write the store; return the command that shows it. Raise MachineError without the extra."""
    _check_replaceable(folder)
    with replaced_folder(folder) as aside:
        (aside / MARK).write_text(json.dumps([night.tag for night in nights]) + "\n")
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
            words = {name: getattr(attempt, name) for name in WORDS} | {"night": night.tag, "device": night.device}
            dials = {name: value for name, value in attempt.outline.dials.items() if name in night.turned_dials}
            config = json.loads(json.dumps(words | dials))
            with redirect_stdout(io.StringIO()):  # it tells how to look at each run
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


def _check_replaceable(folder: Path) -> None:
    if not folder.parent.is_dir():
        raise NightError(f"{folder.parent} is not a folder; make it first, or name another with --out")
    is_ours = (folder / MARK).is_file() or (folder.is_dir() and not any(folder.iterdir()))
    if folder.exists() and not is_ours:
        raise NightError(f"{folder} holds something other than an export for trackio; name another folder with --out")


def _points(place: Place, night: Record, attempt: Attempt) -> dict[int, dict[str, float]]:
    """Return step → metrics of an attempt: its losses by the share of the budget, and what is known at the end."""
    points: dict[int, dict[str, float]] = defaultdict(dict)
    for run in attempt.runs:
        for fraction, loss in () if run.dawn else curve(place, night.tag, attempt.number, run.seed):
            points[round(PARTS * fraction)][f"loss/seed{run.seed}"] = loss
    measured = Measured.of(night, attempt)
    metrics = {name: getattr(measured, name) for name in METRICS}
    points[PARTS] |= {name: float(value) for name, value in metrics.items() if value is not None}
    return points
