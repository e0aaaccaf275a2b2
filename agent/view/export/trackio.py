"""Write nights as a store of Trackio: a project a night, a run an attempt.

Trackio takes the place of its store from the environment, once, when it is imported. So another process fills it.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from agent.errors import MachineError
from agent.invocation import command_for
from agent.records.place import Place
from agent.view.export.folder import replaced
from agent.view.export.sessions import PARTS, Session, sessions_of
from agent.view.facts.nouns import NightFacts

KIND = "trackio"
FILLER = Path(__file__).with_name("trackio_filler.py")


def write_trackio(place: Place, folder: Path, nights: Sequence[NightFacts]) -> str:
    """Write the store; return the command that shows it. Raise MachineError without the extra, or if it fails."""
    if importlib.util.find_spec("trackio") is None:
        raise MachineError(f"the export for Trackio needs trackio; install it with: {command_for('trackio')}")
    projects = _projects(nights)
    with replaced(folder, KIND, [night.tag for night in nights]) as aside:
        runs = (_run(projects[night.tag], session) for night, session in sessions_of(place, nights))
        _fill(aside, runs)
    first = f" --project {projects[nights[0].tag]}" if len(nights) == 1 else ""
    return f"TRACKIO_DIR={folder} trackio show{first}"


def _fill(store: Path, runs: Iterable[Mapping[str, Any]]) -> None:
    environment = dict(os.environ) | {"TRACKIO_DIR": str(store.resolve()), "TRACKIO_STORAGE_MODE": "sqlite"}
    command = [sys.executable, "-P", str(FILLER)]  # -P: in its own folder is another trackio.py
    with TemporaryFile("w+") as said:
        filler = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, text=True
        )
        assert filler.stdin is not None
        try:
            with suppress(BrokenPipeError), filler.stdin as lines:  # broken: it has ended, and says why
                for run in runs:
                    lines.write(json.dumps(run) + "\n")
            filler.wait()
        finally:
            filler.kill()  # where this was interrupted, it must not go on writing into a folder that is removed
            filler.wait()
        said.seek(0)
        last = next(reversed(said.read().strip().splitlines()), f"exit code {filler.returncode}")
    if filler.returncode != 0:
        raise MachineError(f"Trackio could not write its store ({last}); upgrade it with: {command_for('trackio')}")


def _projects(nights: Sequence[NightFacts]) -> dict[str, str]:
    """Return tag → project: Trackio drops the dots of a name, and then two nights might share a store."""
    found: dict[str, str] = {}
    for night in nights:
        name = night.tag.replace(".", "-")
        while name in found.values():
            name += "-"
        found[night.tag] = name
    return found


def _run(project: str, session: Session) -> Mapping[str, Any]:
    """Return what the filler logs: one record a step, and the metrics at the end."""
    records: dict[int, tuple[float, dict[str, float]]] = {}
    for name, points in session.curves.items():
        for point in points:
            records.setdefault(point.step, (point.at_s, {}))[1][name] = point.value
    at_s, last = records.get(PARTS, (session.ended_s, {}))
    records[PARTS] = (at_s, last | dict(session.metrics))
    steps = sorted(records)
    return {
        "project": project,
        "run": session.name,
        "config": dict(session.words | session.facts | session.dials),
        "steps": steps,
        "timestamps": [datetime.fromtimestamp(records[step][0], UTC).isoformat() for step in steps],
        "metrics": [records[step][1] for step in steps],
    }
