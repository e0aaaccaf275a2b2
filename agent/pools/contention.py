"""Measure by the runs of attempt 0 how much slower runs are beside each other than alone.

Workers have their own devices, and share the rest of a machine: the memory's speed, power, the disk. A night with
several of them begins with a run of attempt 0 alone, then makes its further runs on all workers at the same time.
"""

import statistics
from dataclasses import dataclass
from datetime import datetime

from agent.experiment import History, Run
from agent.text import counted

NOTABLE = 0.02  # of the speed; less is said nowhere
ALONE, BESIDE = 0.1, 0.5  # of a run's time with another run of the night: at most, at least; in between it says nothing

Span = tuple[float, float]  # seconds since 1970


@dataclass(frozen=True, slots=True)
class Contention:
    """Hold how the speed of attempt 0 beside others compares with its speed alone."""

    slowdown: float  # share of the speed that is lost; below zero, runs were faster beside each other
    alone: int  # runs
    beside: int  # runs
    workers: int  # that made these

    @property
    def is_notable(self) -> bool:
        return self.slowdown > NOTABLE

    @property
    def words(self) -> str:
        """Return a sentence on the slowdown and, where it is notable, on its meaning for scores, with the remedy."""
        runs = f"{counted(self.beside, 'run')} on {counted(self.workers, 'worker')}, {self.alone} alone"
        if not self.is_notable:
            return f"workers do not slow each other down ({max(0.0, self.slowdown):.1%}; {runs})"
        return (
            f"workers slow each other down: attempt 0 trained {self.slowdown:.1%} slower beside other runs than alone "
            f"({runs}); all later runs share the machine in the same way, so their scores compare with each other, but "
            f"hardly with those of a night with one worker; for less of it begin a night with fewer --workers, or with "
            f"a smaller --cores-each, which leaves cores free"
        )


def contention_of(history: History) -> Contention | None:
    """Return how much slower attempt 0's runs were beside other runs; None if none was alone, or none beside others.

    Attempt 0 may be the whole history: later runs of it, which only others may have accompanied, do not count as alone.
    """
    spans = {id(run): span for attempt in history for run in attempt.runs if (span := _span(run)) is not None}
    alone, beside = [], []
    for run in history[0].done_runs if history else ():
        own = spans.get(id(run))
        if own is None or run.steps_s is None:
            continue
        shared_s = max((_shared_s(own, other) for at, other in spans.items() if at != id(run)), default=0.0)
        if shared_s >= BESIDE * (own[1] - own[0]):
            beside.append(run)
        elif shared_s <= ALONE * (own[1] - own[0]) and not beside:
            alone.append(run)
    if not alone or not beside:
        return None
    fast, slow = (statistics.fmean(run.steps_s or 0.0 for run in runs) for runs in (alone, beside))
    return Contention(1 - slow / fast, len(alone), len(beside), len({run.worker for run in beside}))


def _shared_s(own: Span, other: Span) -> float:
    return min(own[1], other[1]) - max(own[0], other[0])


def _span(run: Run) -> Span | None:
    """Return when the run began and ended; None where that was not recorded, and for a run without length."""
    if run.began is None or run.ended is None:
        return None
    began, ended = (datetime.fromisoformat(at).timestamp() for at in (run.began, run.ended))
    return (began, ended) if ended > began else None
