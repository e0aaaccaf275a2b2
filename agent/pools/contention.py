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
        """Return a sentence on the slowdown and its meaning for scores, with the remedy."""
        return (
            f"workers slow each other down: attempt 0 trained {self.slowdown:.1%} slower beside other runs than alone "
            f"({counted(self.beside, 'run')} on {counted(self.workers, 'worker')}, {self.alone} alone); all later runs "
            f"share the machine in the same way, so their scores compare with each other, but hardly with those of a "
            f"night with one worker; for less of it begin a night with fewer --workers, or with a smaller --cores-each"
        )


def contention_of(history: History) -> Contention | None:
    """Return how much slower attempt 0's runs were beside each other; None if none was alone, or none beside others.

    Later runs of it, which only runs of other attempts may have accompanied, do not count as alone.
    """
    timed = [run for run in (history[0].done_runs if history else ()) if run.steps_s and run.began and run.ended]
    alone, beside = [], []
    for run in timed:
        began_s, ended_s = _span_s(run)
        others = [_span_s(other) for other in timed if other is not run]
        shared_s = max((min(ended_s, end) - max(began_s, begin) for begin, end in others), default=0.0)
        if shared_s >= BESIDE * (ended_s - began_s):
            beside.append(run)
        elif shared_s <= ALONE * (ended_s - began_s) and not beside:
            alone.append(run)
    if not alone or not beside:
        return None
    fast, slow = (statistics.fmean(run.steps_s or 0.0 for run in runs) for runs in (alone, beside))
    return Contention(1 - slow / fast, len(alone), len(beside), len({run.worker for run in beside}))


def _span_s(run: Run) -> tuple[float, float]:
    """Return when a run began and ended, in seconds since 1970."""
    began, ended = (datetime.fromisoformat(at or "").timestamp() for at in (run.began, run.ended))
    return began, ended
