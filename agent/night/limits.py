"""Tell how long a night goes on: how much time its runs take, and when there is no time for another."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.clock import always_s
from agent.errors import NightError
from agent.experiment import Ask, History, all_confirmation_runs
from agent.proposers.proposer import Left
from agent.script.dials import Choices, Dial
from agent.text import counted

CONFIRMATION_SHARE = 1 / 8  # share of the hours for confirming; more would leave less time for finding
# Until a run was measured, start, scoring and audit are estimated from these.
FIRST_EXTRA_S, FIRST_EXTRA_OF_BUDGET = 10.0, 0.25
SIZES = ("BATCH_ROWS", "DEPTH")  # dials that make a step short
ENOUGH_RUNS = 4  # runs of this command from which its next runs are estimated; earlier runs may be of a slower machine


@dataclass(frozen=True, slots=True)
class Pace:
    """Estimate how long the next run and the next idea take: as long as the longest so far."""

    run_s: float  # s of a whole run: dry run, start, compilation, training, scoring and audit
    asking_s: float = 0.0  # s until one idea has come, over all its questions
    confirmation_runs: int = 0  # number of runs so far, in all confirmations of the night
    workers: int = 1  # number of runs at the same time
    holdout_s: float = 0.0  # s that scoring on the holdout adds to a confirmation run

    @property
    def confirmation_run_s(self) -> float:
        return self.run_s + self.holdout_s

    @classmethod
    def of(
        cls,
        history: History,
        asks: Sequence[Ask],
        budget_s: float,
        patience_s: float = 0.0,
        since: str = "",
        dry_runs: bool = False,
    ) -> "Pace":
        """Estimate the pace from a history: only from runs since a time, if enough of them had their whole budget.

        patience_s: the longest call to a proposer, used until one was made. dry_runs: whether edits have dry runs now.
        """
        runs = [run for attempt in history for run in attempt.counted_runs]
        latest = [run for run in runs if (run.began or "") >= since and run.wall_s >= budget_s]
        runs = latest if len(latest) >= ENOUGH_RUNS else runs
        runs_s = [run.wall_s + (run.score.spent_s if run.score else 0.0) for run in runs]
        dry_runs_s = [attempt.dry_run.wall_s for attempt in history if dry_runs and attempt.dry_run is not None]
        asked_s: dict[int, float] = defaultdict(float)
        for ask in asks:
            asked_s[ask.attempt] += ask.wall_s
        expected_s = budget_s * (1 + FIRST_EXTRA_OF_BUDGET) + FIRST_EXTRA_S
        return cls(
            run_s=max(runs_s, default=expected_s) + max(dry_runs_s, default=0.0),
            asking_s=max(asked_s.values(), default=patience_s),
            confirmation_runs=all_confirmation_runs(history),
            holdout_s=max((score.spent_s for run in runs for score in run.scores), default=0.0),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Limit a night: after these, no further run begins; None means no limit.

    `proposals` is how many attempts the whole night had so far, without attempt 0 and the confirmation's questions.
    """

    experiments: int | None = None  # proposals, counted over the whole night
    hours: float | None = None  # time limit of this command: the last run, in the confirmation too, should end by then
    confirmation_runs: int | None = None  # confirmation runs of the whole night; None: by CONFIRMATION_SHARE
    began_s: float = field(default_factory=always_s)  # a clock that sleep does not stop: the hours end by the morning

    def reached(self, proposals: int, pace: Pace, before_s: float) -> bool:
        """Return whether it is too late for an idea that arrives in `before_s` seconds."""
        return self.left(proposals).experiments == 0 or not self._has_time(before_s + self._until_confirmed_s(pace))

    def left(self, proposals: int) -> Left:
        """Return what is left of the night, for people."""
        experiments = None if self.experiments is None else max(0, self.experiments - proposals)
        seconds = None if self.hours is None else max(0.0, self.hours * 3600 - (always_s() - self.began_s))
        return Left(experiments, seconds)

    def allows_run(self, number: int, pace: Pace) -> bool:
        """Return whether a further run of this attempt would end in time.

        No time is reserved for the confirmation while attempt 0 has no decision: there would be nothing to confirm.
        """
        return self._has_time(self._until_confirmed_s(pace) if number else pace.run_s)

    def is_over(self, pace: Pace) -> bool:
        """Return whether no further run would end in time, even with no time left for the confirmation."""
        return not self._has_time(pace.run_s)

    def allows_confirmation_run(self, pace: Pace) -> bool:
        """Return whether a confirmation run would end in time."""
        return self._has_time(pace.confirmation_run_s)

    def reserved_runs(self, pace: Pace) -> int:
        """Return how many runs are still reserved for the confirmation."""
        if self.confirmation_runs is not None:
            return max(0, self.confirmation_runs - pace.confirmation_runs)
        return (
            0
            if self.hours is None
            else pace.workers * int(CONFIRMATION_SHARE * self.hours * 3600 / pace.confirmation_run_s)
        )

    def pace_words(self, pace: Pace) -> str:
        """Say how many experiments an hour to expect, and how many there is time for."""
        an_hour = 3600 * pace.workers / pace.run_s
        words = f"about {an_hour:,.{1 if an_hour < 10 else 0}f} experiments an hour"
        left_s = self.left(0).seconds
        if left_s is None:
            return words
        before_confirmation_s = max(0.0, left_s - self._until_confirmed_s(pace) + pace.run_s)
        # whole runs only
        return f"{words}, and time for about {pace.workers * int(before_confirmation_s / pace.run_s)}"

    def _until_confirmed_s(self, pace: Pace) -> float:
        """Return the seconds of one run, and of those that are reserved for the confirmation."""
        return pace.run_s + math.ceil(self.reserved_runs(pace) / pace.workers) * pace.confirmation_run_s

    def _has_time(self, needed_s: float) -> bool:
        return self.hours is None or always_s() - self.began_s + needed_s <= self.hours * 3600


def few_steps_words(step_s: float, budget_s: float, enough: int, dials: Iterable[Dial]) -> str:
    """Say that a run makes too few steps, and which budget, or which dials of the script, give it more.

    enough: as many steps tell ideas apart.
    """
    least = [
        f"{dial.name} {dial.span.values[0]}"
        for dial in dials
        if dial.name in SIZES and isinstance(dial.span, Choices) and dial.value != dial.span.values[0]
    ]
    remedies = [f"--budget-s {10 * math.ceil(enough * step_s / 10)}"] + ([" and ".join(least)] if least else [])
    steps = counted(max(1, round(budget_s / step_s)), "step")
    return (
        f"one step takes {step_s:.2g} s here, and a run of {budget_s:g} s makes {steps}, "
        f"too few to tell ideas apart: end this night, and use {', or '.join(remedies)}"
    )


def check_hours(hours: float | None, pace: Pace) -> None:
    """Raise NightError if the hours are less than one run."""
    if hours is not None and hours * 3600 < pace.run_s:
        raise NightError(
            f"--hours {hours:g} is less than one run takes, about {pace.run_s:.0f} s with start and scoring; "
            "give it more"
        )
