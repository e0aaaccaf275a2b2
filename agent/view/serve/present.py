"""Read how far the run at work has come. A script writes that file, so its numbers are kept within their bounds."""

from agent.records.place import Place, run_folder
from agent.runs.train import read_progress
from agent.view.live.follow import Activity, Moment
from agent.view.live.verdicts import within_one


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
