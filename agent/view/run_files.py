"""Read the progress, the loss curve and the log of a run from the files in its folder."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent.experiment import Attempt, Ending, Run
from agent.files import open_plain, plain_bytes, read_end
from agent.judging.early_stop import points_of
from agent.judging.failures import process_failure
from agent.records.place import Place, run_folder
from agent.runs.runner import beside
from agent.runs.train import METRICS, METRICS_BYTES, read_progress
from agent.sandbox.process import LOG, last_lines
from agent.text import harmless, shorten
from agent.work import Doing, Progress, Work

Curve = tuple[tuple[float, float], ...]  # (fraction of the budget, training loss)
MOST_POINTS = 300  # most points of a curve that is shown
LOG_LINES, LINE_CHARS = 60, 300  # most lines of a log that is shown, and characters of a line
TRACEBACK = "Traceback (most recent call last)"


def training_progress(night: Path, work: Work, by_pool: Progress | None = None) -> Progress | None:
    """Return how far a training is by its pool, else by its curve in the night's folder; None where neither tells it.

    None also where the worker does not train: only trainings are measured against the budget.
    """
    if work.doing is not Doing.TRAINING or work.seed is None:
        return None
    return by_pool or read_progress(run_folder(night, work.attempt, work.seed) / "out")


def before_training(night: Path, work: Work) -> str | None:
    """Say what a training that has not told how far it is does: a script prints something before its first step.

    None where the worker does not train.
    """
    if work.doing is not Doing.TRAINING or work.seed is None:
        return None
    return "first step" if plain_bytes(run_folder(night, work.attempt, work.seed) / LOG) else "start"


def curve(place: Place, tag: str, number: int, seed: int, most: int = MOST_POINTS) -> Curve:
    """Return fraction of the budget and training loss of a run, thinned; empty where its log is gone."""
    try:
        points = points_of(read_end(run_folder(place.folder(tag), number, seed) / "out", METRICS, METRICS_BYTES))
    except OSError:
        return ()
    return thinned(points, most)


def thinned(points: Sequence[tuple[float, float]], most: int) -> Curve:
    """Return a curve as the means of at most so many equal parts of the budget, where it has more points."""
    if len(points) <= most:
        return tuple(points)
    parts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for point in points:
        parts[min(int(point[0] * most), most - 1)].append(point)
    return tuple(tuple(map(statistics.fmean, zip(*part, strict=True))) for part in parts.values())  # type: ignore[misc]


def log_tail(place: Place, tag: str, number: int, seed: int, what: str | None = None) -> str | None:
    """Return the last lines of a run's log, or of what was made beside it; None where the file is gone.

    A script writes it. So it is read as bytes, up to a limit, from a plain file only, and shown as text.
    """
    folder, most_bytes = run_folder(place.folder(tag), number, seed), LOG_LINES * LINE_CHARS
    try:
        content = read_end(folder if what is None else beside(folder, what), LOG, most_bytes)
    except OSError:
        return None
    text = content.replace(b"\0", b"").decode(errors="backslashreplace")
    lines = text.splitlines()[1 if len(content) == most_bytes else 0 :]  # the first is a part of a line
    return "\n".join(shorten(harmless(line), LINE_CHARS) for line in lines[-LOG_LINES:])


def scoring_log(place: Place, tag: str, number: int, run: Run) -> str | None:
    """Return the last lines of the scoring or audit by which a run failed; None where none did, or its log is gone.

    For people alone: that process has read the validation text, and no proposer of scripts reads its words.
    """
    failed = next((score for score in run.scores if score.failure or (score.audit and score.audit.failure)), None)
    if failed is None:
        return None
    return log_tail(place, tag, number, run.seed, "score" if failed.failure else "audit")


# ---- what a training that failed has left ---------------------------------------------------------------------------


def log_of(folder: Path, attempt: Attempt) -> Path | None:
    """Return the log of the training that failed, or of the last one; None where no training left one.

    folder: of the night.
    """
    run = _telling(attempt)
    dry = folder / "runs" / f"{attempt.number:04d}" / "dry"
    log = (dry if run is None else run_folder(folder, attempt.number, run.seed)) / LOG
    return log if plain_bytes(log) is not None else None


def traceback_of(folder: Path, attempt: Attempt) -> str | None:
    """Return the end of the log of a training that crashed; of a dry run only a traceback."""
    run = _telling(attempt)
    if run is not None:
        return run.last_lines or None if run.ending is Ending.CRASHED else None
    if (log := log_of(folder, attempt)) is not None:
        with suppress(OSError), open_plain(log.parent, log.name) as file:
            lines = last_lines(file)
            return lines if TRACEBACK in lines else None
    return None


def _telling(attempt: Attempt) -> Run | None:
    """Return the night's run whose training failed, or else the last; None where there is none."""
    failed = (run for run in attempt.done_runs if process_failure(run) is not None)
    return next(failed, next(reversed(attempt.done_runs or attempt.runs), None))
