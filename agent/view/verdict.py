"""Tell the author of an edit, a program or a person, what became of it, and what to do next."""

from contextlib import suppress
from pathlib import Path

from agent.experiment import Attempt, Ending, Run, Status
from agent.files import open_plain
from agent.invocation import typed
from agent.judging.failures import process_failure
from agent.records.place import run_folder
from agent.records.record import Record
from agent.records.summary import Scored
from agent.sandbox.process import LOG, last_lines
from agent.text import harmless
from agent.view.answer import TryAnswer, for_author

TRACEBACK = "Traceback (most recent call last)"


def answer_of_try(id_of_try: str, record: Record, attempt: Attempt, folder: Path, merged_onto: int | None) -> TryAnswer:
    """Return what `nightshift try --json` prints of a decided attempt.

    folder: of the night. merged_onto: the best attempt, which was kept while the edit waited; None: tried as submitted.
    """
    log, best = log_of(folder, attempt), record.best
    better = None if best is None or best.number == attempt.number else best
    way_back = None if better is None else typed("take", f"{record.tag}:{better.number}")
    return TryAnswer.of(
        record,
        attempt,
        id=id_of_try,
        state="done",
        tag=record.tag,
        attempt=attempt.number,
        parent=attempt.parent,
        commit=attempt.commit,
        title=attempt.title,
        reason=for_author(attempt).words,
        next=_next(attempt, way_back, merged_onto),
        traceback=traceback_of(folder, attempt),
        best=Scored.of(record, best),
        go_back_with=way_back,
        merged_onto=merged_onto,
        log=None if log is None else str(log),
    )


def _next(attempt: Attempt, way_back: str | None, merged_onto: int | None) -> str:
    """Return what to do now, in a sentence; way_back: the command to take the best script, where it is another one."""
    if way_back is not None:
        advice = "it is not better: try another idea"
        if attempt.status is Status.CRASH:
            advice = "it crashed: read traceback and log, and correct it"
        return f"{advice}; to begin from the best script: {way_back}"
    if merged_onto is None:
        return f"edit on from here: attempt {attempt.number} is the best script now"
    merged = f"attempt {attempt.number}, your edit merged onto attempt {merged_onto}, is the best script now"
    return f"{merged}: take it with: {typed('take', str(attempt.number))}, and edit on from there"


def verdict_lines(answer: TryAnswer) -> list[str]:
    """Return the verdict as lines for people, with the next commands."""
    measured = "" if answer.val_bpb is None else f" (val_bpb {answer.val_bpb:.6f})"
    lines = [f"{answer.status}: {answer.reason or ''}{measured}"]
    if answer.best is not None:
        lines.append(f"best so far: #{answer.best.number} {answer.best.title}, val_bpb {answer.best.val_bpb:.6f}")
    lines.append(f"next: {answer.next}")
    lines.append(f"more: {typed('show', f'{answer.tag}:{answer.attempt}')}, {typed('results', answer.tag)}")
    return [harmless(line) for line in lines]


# ---- logs ------------------------------------------------------------------------------------------------------------


def log_of(folder: Path, attempt: Attempt) -> Path | None:
    """Return the log of the training that failed, or of the last one; None where no training left one.

    folder: of the night.
    """
    run = _telling(attempt)
    dry = folder / "runs" / f"{attempt.number:04d}" / "dry"
    log = (dry if run is None else run_folder(folder, attempt.number, run.seed)) / LOG
    return log if log.is_file() else None


def traceback_of(folder: Path, attempt: Attempt) -> str | None:
    """Return the end of the log of a training that crashed; of a dry run only a traceback."""
    run, dry_run = _telling(attempt), attempt.dry_run
    if run is not None:
        return run.last_lines or None if run.ending is Ending.CRASHED else None
    log = log_of(folder, attempt)
    if dry_run is not None and dry_run.failure is not None and log is not None:
        with suppress(OSError), open_plain(log.parent, log.name) as file:
            lines = last_lines(file)
            return lines if TRACEBACK in lines else None
    return None


def _telling(attempt: Attempt) -> Run | None:
    """Return the night's run whose training failed, or else the last; None where there is none."""
    failed = (run for run in attempt.done_runs if process_failure(run) is not None)
    return next(failed, next(reversed(attempt.done_runs or attempt.runs), None))
