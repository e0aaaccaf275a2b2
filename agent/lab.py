"""All that a night works with, and when it begins nothing more."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.experiment import History, Judge, Proposer, Watcher, runs_at_dawns
from agent.journal import Journal
from agent.judge import PLAUSIBLE_GAIN
from agent.opening import Place
from agent.stop import Stop
from agent.workshop import Workshop

DAWN_SHARE = 1 / 8  # of the hours: what is left to confirm in is taken from what could have been found


@dataclass(frozen=True, slots=True)
class Limits:
    """When to begin no further run; None: never."""

    experiments: int | None = None  # proposals after attempt 0, counted over the whole night
    hours: float | None = None  # of this call, by when the last run should have ended, dawn's included
    dawn_runs: int | None = None  # for confirming, over the whole night; None: an eighth of the hours, if there are any
    _start: float = field(default_factory=time.monotonic)

    def reached(self, history: History) -> bool:
        if not history:
            return False  # without attempt 0 there is nothing to look at in the morning
        if self.experiments is not None and sum(attempt.is_idea for attempt in history) > self.experiments:
            return True
        return not self._has_time(history, 1 + self.runs_at_dawn(history))

    def dawn_is_over(self, history: History) -> bool:
        return not self._has_time(history, 1)

    def runs_at_dawn(self, history: History) -> int:
        """How many runs are still kept for confirming what the night has found."""
        if self.dawn_runs is not None:
            return max(0, self.dawn_runs - runs_at_dawns(history))
        if self.hours is None:
            return 0
        return int(DAWN_SHARE * self.hours * 3600 / _longest_run_s(history))

    def _has_time(self, history: History, runs: int) -> bool:
        elapsed_s = time.monotonic() - self._start
        return self.hours is None or elapsed_s + runs * _longest_run_s(history) <= self.hours * 3600


def _longest_run_s(history: History) -> float:
    """The budget alone would leave out start, compilation and scoring; dawn's runs are scored on two texts."""
    runs = [[run.spent_s for run in attempt.counted_runs] for attempt in history]
    return max((sum(spent_s) / len(spent_s) for spent_s in runs if spent_s), default=0.0) or 1.0


@dataclass(frozen=True, slots=True)
class Lab:
    """All that a night works with."""

    place: Place
    journal: Journal
    shop: Workshop
    proposer: Proposer
    judge: Judge
    watcher: Watcher
    stop: Stop
    limits: Limits
    plausible_gain: float = PLAUSIBLE_GAIN
    baseline: Callable[[Place], str] | None = None  # attempt 0's script; None: as it stands in the working tree
    early_stop: bool = False  # end runs whose curve says that they will be no better than the incumbent
    dry_runs: bool = False  # seconds of training before the minutes, for edits of more than dials
