"""Read what a night does at present: the run that goes on, its progress, its curve and the end of its log.

The journal knows which run has begun. The rest stands in files that a script writes, so it is read as bytes, up to a
limit, from plain files only, and shown as text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.experiment import Ending
from agent.records.journal import Journal
from agent.records.place import Place
from agent.runs.runner import read_end
from agent.runs.train import read_progress
from agent.sandbox.process import LOG
from agent.text import harmless, shorten

TAIL_BYTES, TAIL_LINES, LINE_CHARS = 16 << 10, 60, 300
LATEST_RUN = "SELECT attempt, seed, dawn, ending, began, score_s FROM runs ORDER BY id DESC LIMIT 1"
NEWEST = """
    SELECT max(number) AS number,
        EXISTS (SELECT 1 FROM decisions WHERE attempt = (SELECT max(number) FROM attempts)) AS is_decided
    FROM attempts
"""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Present:
    """What a running night does: which attempt, which seed, and which step of it."""

    attempt: int
    seed: int | None  # None: no run of it has begun
    doing: str  # such as: trains
    began: str | None = None  # ISO 8601, UTC
    dawn: int = 0  # 0: the night's own run; k: of the k-th dawn

    @property
    def trains(self) -> bool:
        return self.doing == "trains"


def at_work(journal: Journal) -> Present | None:
    """Return what a running night does by its journal; None between attempts, while it asks for an idea."""
    (newest,) = journal.query(NEWEST)
    number, run = newest["number"], next(iter(journal.query(LATEST_RUN)), None)
    if run is not None and run["ending"] is None:
        return Present(run["attempt"], run["seed"], "trains", run["began"], run["dawn"])
    if run is not None and run["ending"] == Ending.FINISHED and run["score_s"] is None:
        return Present(run["attempt"], run["seed"], "is scored", dawn=run["dawn"])
    if number is None or newest["is_decided"]:
        return None
    if run is None or run["attempt"] != number:
        return Present(number, None, "is tried for a moment")
    return Present(number, run["seed"], "is judged")


def run_folder(place: Place, tag: str, number: int, seed: int) -> Path:
    return place.folder(tag) / "runs" / f"{number:04d}" / f"seed{seed}"


def progress_of(place: Place, tag: str, now: Present) -> dict[str, object]:
    """Return how far a training run has come, as numbers; empty before its first step, and while none trains."""
    if not now.trains or now.seed is None:
        return {}
    found = read_progress(run_folder(place, tag, now.attempt, now.seed) / "out")
    if found is None:
        return {}
    fraction = min(max(found.fraction, 0.0), 1.0)
    return {"fraction": round(fraction, 4), "loss": found.loss, "step": found.step, "tokens_s": found.tokens_s}


def elapsed_s(began: str | None) -> float | None:
    """Return the seconds since a time of the journal; None where it notes none."""
    if began is None:
        return None
    return round((datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds(), 1)


def log_tail(place: Place, tag: str, number: int, seed: int, *, scoring: bool = False) -> str | None:
    """Return the last lines of a run's log; None where the file is gone."""
    folder = run_folder(place, tag, number, seed)
    try:
        said = read_end(folder.with_name(f"{folder.name}.score") if scoring else folder, LOG, TAIL_BYTES)
    except OSError:
        return None
    text = said.replace(b"\0", b"").decode(errors="backslashreplace")
    lines = text.splitlines()[1 if len(said) == TAIL_BYTES else 0 :]  # the first is a part of a line
    return "\n".join(shorten(harmless(line), LINE_CHARS) for line in lines[-TAIL_LINES:])


def rounded(points: Points) -> list[tuple[float, float]]:
    """Return a curve with as many digits as a drawing of it can show."""
    return [(round(fraction, 4), round(loss, 4)) for fraction, loss in points]
