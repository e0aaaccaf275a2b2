"""Read how far the runs at work have come. A script writes that file, so its numbers are kept within their bounds."""

from agent.experiment import Doing, Work
from agent.records.place import Place, run_folder
from agent.runs.outputs import read_progress
from agent.view.facts.nouns import NightFacts
from agent.view.facts.workers import Busy
from agent.view.live.follow import seconds_since
from agent.view.live.verdicts import within_one


def progress_of(place: Place, tag: str, attempt: int, seed: int | None, work: str) -> dict[str, object]:
    """Return how far a training run has come, as numbers; empty before its first step, and while none trains."""
    if work != Doing.TRAINING or seed is None:
        return {}
    found = read_progress(run_folder(place.folder(tag), attempt, seed) / "out")
    if found is None:
        return {}
    return {
        "fraction": round(within_one(found.fraction), 4),
        "loss": found.loss,
        "step": found.step,
        "tokens_s": found.tokens_s,
    }


def workers_of(place: Place, facts: NightFacts, busy: Busy) -> dict[str, object]:
    """Return what each of several workers does now, in the order of their names."""
    return {"count": busy.workers, "busy": [_job(place, facts, job) for job in busy.jobs]}


def _job(place: Place, facts: NightFacts, job: Work) -> dict[str, object]:
    elapsed_s, attempt = seconds_since(job.began), facts.attempt(job.attempt)
    return {
        "worker": job.worker,
        "attempt": job.attempt,
        "title": "" if attempt is None else attempt.title,
        "work": job.doing,
        "seed": job.seed,
        "dawn": job.dawn,
        "elapsed_s": None if elapsed_s is None else round(elapsed_s),
        **progress_of(place, facts.tag, job.attempt, job.seed, job.doing),
    }
