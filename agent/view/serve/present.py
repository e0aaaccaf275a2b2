"""Read what the run at work has left so far: its progress, its curve and the end of its log.

A script writes these files. So they are read as bytes, up to a limit, from plain files only, and shown as text.
"""

from agent.records.place import Place, run_folder
from agent.runs.runner import read_end
from agent.runs.train import read_progress
from agent.sandbox.process import LOG
from agent.text import harmless, shorten
from agent.view.live.follow import Activity, Moment
from agent.view.live.verdicts import within_one

TAIL_BYTES, TAIL_LINES, LINE_CHARS = 16 << 10, 60, 300


def progress_of(place: Place, tag: str, now: Moment) -> dict[str, object]:
    """Return how far a training run has come, as numbers; empty before its first step, and while none trains."""
    if now.work is not Activity.TRAINING or now.seed is None:
        return {}
    found = read_progress(run_folder(place.folder(tag), now.attempt, now.seed) / "out")
    if found is None:
        return {}
    return {
        "fraction": round(within_one(found.fraction), 4),
        "loss": found.loss,
        "step": found.step,
        "tokens_s": found.tokens_s,
    }


def log_tail(place: Place, tag: str, number: int, seed: int, *, scoring: bool = False) -> str | None:
    """Return the last lines of a run's log; None where the file is gone."""
    folder = run_folder(place.folder(tag), number, seed)
    try:
        said = read_end(folder.with_name(f"{folder.name}.score") if scoring else folder, LOG, TAIL_BYTES)
    except OSError:
        return None
    text = said.replace(b"\0", b"").decode(errors="backslashreplace")
    lines = text.splitlines()[1 if len(said) == TAIL_BYTES else 0 :]  # the first is a part of a line
    return "\n".join(shorten(harmless(line), LINE_CHARS) for line in lines[-TAIL_LINES:])
