"""How long a night's runs take, when there is no time for another, and how its owner is told how fast it will go."""

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent.errors import NightError
from agent.experiment import Ask, History, runs_at_dawns
from agent.proposers.source import Left
from agent.text import counted, duration

FEW_IDEAS = 3  # the time of fewer says less than that of attempt 0's runs
DAWN_SHARE = 1 / 8  # of the hours: more time for confirming would leave less for finding
# Estimate of start, scoring and audit together, beyond the budget, until a run was measured.
FIRST_EXTRA_S, FIRST_EXTRA_OF_BUDGET = 10.0, 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """Estimate how long the next run, call and dry run take: as long as the longest so far."""

    run_s: float  # with start, compilation, scoring and audit, which the budget alone would leave out
    asking_s: float = 0.0  # for one idea, however many calls that takes
    dry_run_s: float = 0.0
    dawn_runs: int = 0  # made so far, over the whole night
    workers: int = 1  # which run at the same time

    @classmethod
    def of(cls, history: History, asks: Sequence[Ask], budget_s: float, patience_s: float = 0.0) -> "Pace":
        """Compute the pace of a history; `patience_s`, the longest that a call may take, counts until the first."""
        runs_s = [run.spent_s for attempt in history for run in attempt.counted_runs]
        asked_s: dict[int, float] = defaultdict(float)
        for ask in asks:
            asked_s[ask.attempt] += ask.wall_s
        return cls(
            run_s=max(runs_s, default=expected_run_s(budget_s)),
            asking_s=max(asked_s.values(), default=patience_s),
            dry_run_s=max((attempt.dry_run.wall_s for attempt in history if attempt.dry_run is not None), default=0.0),
            dawn_runs=runs_at_dawns(history),
        )


def expected_run_s(budget_s: float) -> float:
    """Return the estimated seconds of a run before any was measured."""
    return budget_s * (1 + FIRST_EXTRA_OF_BUDGET) + FIRST_EXTRA_S


@dataclass(frozen=True, slots=True)
class Limits:
    """Limit a night: after these, no further run begins; None means no limit."""

    experiments: int | None = None  # proposals after attempt 0, counted over the whole night
    hours: float | None = None  # of this call, by when the last run should have ended, dawn's included
    dawn_runs: int | None = None  # for confirming, over the whole night; None: an eighth of the hours, if there are any
    _start: float = field(default_factory=time.monotonic)

    def reached(self, ideas: int, pace: Pace, wait_s: float = 0.0) -> bool:
        """Return whether no further idea can be tried, even if it is only asked for after `wait_s` seconds.

        ideas: the number of attempts, with attempt 0 and without dawn's questions.
        """
        if not ideas:
            return False  # without attempt 0 there is nothing to look at in the morning
        if self.has_enough_ideas(ideas):
            return True
        return not self._has_time(wait_s + pace.asking_s + pace.dry_run_s + self._until_dawn_s(pace))

    def left(self, proposals: int) -> Left:
        """Return what is left of the night; proposals: the attempts without attempt 0 and dawn's questions."""
        experiments = None if self.experiments is None else max(0, self.experiments - proposals)
        seconds = None if self.hours is None else max(0.0, self.hours * 3600 - (time.monotonic() - self._start))
        return Left(experiments, seconds)

    def has_enough_ideas(self, ideas: int) -> bool:
        return self.experiments is not None and ideas > self.experiments

    def allows_run(self, number: int, pace: Pace, before_s: float = 0.0) -> bool:
        """Return whether a further run of this attempt would end in time, if it begins after `before_s` seconds.

        No time is reserved for dawn while attempt 0 has no decision: there would be nothing to confirm.
        """
        return self._has_time(before_s + (self._until_dawn_s(pace) if number else pace.run_s))

    def is_over(self, pace: Pace) -> bool:
        """Return whether no run would end in time any more, not even one of dawn."""
        return not self._has_time(pace.run_s)

    def runs_at_dawn(self, pace: Pace) -> int:
        """Return how many runs are still reserved for dawn."""
        if self.dawn_runs is not None:
            return max(0, self.dawn_runs - pace.dawn_runs)
        return 0 if self.hours is None else pace.workers * int(DAWN_SHARE * self.hours * 3600 / pace.run_s)

    def _until_dawn_s(self, pace: Pace) -> float:
        return (1 + math.ceil(self.runs_at_dawn(pace) / pace.workers)) * pace.run_s

    def _has_time(self, needed_s: float) -> bool:
        return self.hours is None or time.monotonic() - self._start + needed_s <= self.hours * 3600


def check_hours(hours: float | None, pace: Pace) -> None:
    """Raise NightError if the hours are less than one run."""
    if hours is not None and hours * 3600 < pace.run_s:
        raise NightError(
            f"--hours {hours:g} is less than one run takes, about {pace.run_s:.0f} s with start and scoring; "
            "give it more"
        )


def calibration_runs(of_judge: int, workers: int) -> int:
    """Return how often attempt 0 runs first: with several workers alone, and then on all of them beside itself."""
    return of_judge if workers == 1 else max(of_judge, 1 + workers)


def pace_words(
    history: History, left: Left, dawn_runs: int, workers: int = 1, now: datetime | None = None
) -> str | None:
    """Return how many experiments an hour are to be expected, how many fit, and until when.

    None where attempt 0 has no score yet. dawn_runs: those that are kept for it. now: local, for a test.
    """
    runs_s = [run.spent_s for first in history[:1] for run in first.counted_runs if run.score is not None]
    if not runs_s:
        return None
    run_s, now = statistics.median(runs_s), now or datetime.now()
    edits_s = [attempt.spent_s for attempt in history if attempt.is_edit]
    each_s = statistics.fmean(edits_s) if len(edits_s) >= FEW_IDEAS else run_s
    words = f"about {3600 * workers / each_s:.1f} experiments an hour, {duration(each_s / 3600)} each"
    if left.seconds is not None:
        fit = max(0, int((left.seconds - math.ceil(dawn_runs / workers) * run_s) * workers / each_s))
        fit = fit if left.experiments is None else min(fit, left.experiments)
        beside = f", beside {counted(dawn_runs, 'run')} for dawn" if dawn_runs else ""
        return f"{words}; about {counted(fit, 'experiment')} fit until {clock(now, left.seconds)}{beside}"
    if left.experiments:
        ends = clock(now, math.ceil(left.experiments / workers) * each_s)
        return f"{words}; {counted(left.experiments, 'experiment')} will take until about {ends}"
    return words


def clock(now: datetime, seconds: float) -> str:
    """Return the local time after so many seconds, with the day where it is another."""
    try:
        then = now + timedelta(seconds=seconds)
    except OverflowError:  # a billion experiments, say, which mean that somebody will stop it
        return "the year 10000"
    return then.strftime("%H:%M" if then.date() == now.date() else "%a %H:%M")
