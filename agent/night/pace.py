"""Say how fast a night will go: experiments an hour, how many fit into its hours, when these end.

Before attempt 0 has run, the pace is that of the latest night here on the same device by the same protocol.
"""

import math
import statistics
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from agent.amounts import counted, duration
from agent.errors import NightError
from agent.experiment import History, Left, Night
from agent.judging.noise import FEW_STEPS
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.summary import Standing, summary

LATEST = 20  # nights that are looked at
FEW_IDEAS = 3  # the time of fewer says less than that of attempt 0's runs


@dataclass(frozen=True, slots=True)
class Experience:
    """Hold what is known of how long an experiment takes."""

    run_s: float  # with start and scoring
    experiment_s: float  # all runs of an edit, on the mean
    steps: int | None  # of a run, as attempt 0 reports it
    tag: str | None = None  # of the night that it is known from; None: this one

    @classmethod
    def of(cls, night: Standing, tag: str | None = None) -> "Experience | None":
        """Sum up a night; None where its attempt 0 has no run that counts."""
        first, sources = night.first, night.brought
        runs_s = [run.spent_s for run in first.counted_runs if run.score is not None] if first is not None else []
        if first is None or not runs_s:
            return None
        ideas, run_s = sum(one.attempts for one in sources), statistics.median(runs_s)
        mean_s = sum(one.spent_s for one in sources) / ideas if ideas >= FEW_IDEAS else run_s
        return cls(run_s, mean_s, first.summary.num_steps if first.summary is not None else None, tag)


def experience(place: Place, night: Night, history: History) -> Experience | None:
    """Return what this night knows, or else the latest other one that is comparable; None where neither is."""
    own = Experience.of(summary(history))
    if own is not None:
        return own
    for tag in [one for one in reversed(place.tags()) if one != night.tag][:LATEST]:
        with suppress(NightError, OSError), Journal.read(place.journal(tag)) as journal:
            other = journal.night()
            if (other.protocol, other.device) == (night.protocol, night.device):
                found = Experience.of(summary(journal.outlines()), tag)
                if found is not None:
                    return found
    return None


@dataclass(frozen=True, slots=True)
class Ahead:
    """Hold what a night has before it."""

    left: Left
    calibration: int  # runs of attempt 0 that are still to come, one after another
    dawn: int  # runs that are kept for dawn
    workers: int = 1  # which make experiments side by side


def pace_words(known: Experience, ahead: Ahead, now: datetime | None = None) -> str:
    """Return how many experiments an hour are to be expected, how many fit, and until when; now: local, for a test."""
    source = f" as in night {known.tag}" if known.tag is not None else ""
    every_s = known.experiment_s / ahead.workers
    an_hour = 3600 / every_s
    rate = f"{an_hour:.0f}" if an_hour >= 10 else f"{an_hour:.2g}"
    beside_others = "" if ahead.workers == 1 else f", {ahead.workers} at a time"
    words = f"about {rate} experiments an hour{source}, {duration(known.experiment_s / 3600)} each{beside_others}"
    first_s, left, now = known.run_s * ahead.calibration, ahead.left, now or datetime.now()
    if left.seconds is not None:
        fit = max(0, int((left.seconds - first_s - math.ceil(ahead.dawn / ahead.workers) * known.run_s) / every_s))
        fit = fit if left.experiments is None else min(fit, left.experiments)
        beside = f", beside {counted(ahead.dawn, 'run')} for dawn" if ahead.dawn else ""
        return f"{words}; about {counted(fit, 'experiment')} fit until {clock(now, left.seconds)}{beside}"
    if left.experiments:
        ends = clock(now, first_s + math.ceil(left.experiments / ahead.workers) * known.experiment_s)
        return f"{words}; {counted(left.experiments, 'experiment')} will take until about {ends}"
    return words


def few_steps(known: Experience) -> str | None:
    """Return a warning for runs that have too few steps to tell a good edit from a bad one."""
    if known.tag is None or known.steps is None or known.steps >= FEW_STEPS:
        return None  # of this night's own runs, the words on its noise say so
    return (
        f"a run had {counted(known.steps, 'step')} in night {known.tag}, and below {FEW_STEPS} hardly trains: take a "
        f"longer --budget-s or a smaller model, in a new night"
    )


def clock(now: datetime, seconds: float) -> str:
    """Return the local time after so many seconds, with the day where it is another."""
    then = now + timedelta(seconds=seconds)
    return then.strftime("%H:%M" if then.date() == now.date() else "%a %H:%M")
