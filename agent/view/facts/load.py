"""Tell when each worker of a night was busy, how busy all of them were, and how many experiments an hour that made.

Pure.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from agent.experiment import Ask, History, NightCall, Run
from agent.view.facts.nouns import NightFacts

LEAST_PAUSE_S = 60.0  # where nothing was at work for longer than this and than a run's budget, the night had paused
ROUNDED_S = 0.001  # SQLite's times may be earlier by so much: what begins in a call's second is the call's
NUMBERS = re.compile(r"(\d+)")
Between = tuple[float, float]  # two times of the clock time.time()


class BusyTime(NamedTuple):  # and no dataclass: ten thousand are made in a tenth of a second
    """Hold when a worker was busy with a run: with its training, and with the scoring and the audits after it."""

    worker: str
    attempt: int
    seed: int
    dawn: int
    ending: str | None  # None: it goes on
    began_s: float  # of the clock time.time()
    ended_s: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hold a time in which a call of a night was at work without a pause, and how many workers it had."""

    began_s: float  # of the clock time.time()
    ended_s: float
    workers: int  # as its call was recorded; else those that had a run in it, at least 1

    @property
    def length_s(self) -> float:
        return self.ended_s - self.began_s


@dataclass(frozen=True, slots=True)
class Load:
    """Hold how busy the workers of a night were; pauses between its calls do not count."""

    workers: int  # of its latest call
    at_work_s: float  # that the night was at work
    busy_s: float  # of all workers together
    utilisation: float | None  # their share of the time of all workers, 0 to 1; None before the first run
    experiments_an_hour: float | None  # ideas that were decided, dawn's questions not among them


class RunTimes(NamedTuple):
    """Hold the facts of a run that tell when its worker was busy."""

    worker: str
    attempt: int
    seed: int
    dawn: int
    ending: str | None  # None: it goes on
    began_s: float | None  # of the clock time.time()
    ended_s: float | None  # when it was scored, too
    train_s: float
    scoring_s: float

    @classmethod
    def of(cls, attempt: int, run: Run) -> "RunTimes":
        times = seconds(run.began), seconds(run.ended), run.wall_s, run.spent_s - run.wall_s
        return cls(run.worker, attempt, run.seed, run.dawn, run.ending, *times)

    @property
    def is_cut_off(self) -> bool:
        """Return whether nothing tells when it ended: it goes on, or the harness died during it."""
        return self.ended_s is None and not self.train_s


def in_order(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    parts = NUMBERS.split(name)
    return tuple((text, int(number or -1)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


# ---- when each was busy ----------------------------------------------------------------------------------------------


def busy_times(runs: Iterable[RunTimes], busy: Collection[str] = (), now_s: float | None = None) -> list[BusyTime]:
    """Return when each worker was busy, by worker and then by time.

    busy: workers that have a job now. now_s: the present time; None for a night that is over. A run that the harness
    did not survive has no known length.
    """
    by_worker: dict[str, list[tuple[float, RunTimes]]] = defaultdict(list)
    for run in runs:
        if run.began_s is not None:
            by_worker[run.worker].append((run.began_s, run))
    found = []
    for worker in sorted(by_worker, key=in_order):
        own = sorted(by_worker[worker], key=itemgetter(0))
        _, last = own[-1]
        goes_on = last.is_cut_off and worker in busy
        for (began_s, run), (later_s, _) in pairwise([*own, (math.inf, last)]):
            # an audit comes later, and is counted here as if it had followed at once
            ending, ended_s = run.ending, max(run.ended_s or 0.0, began_s + run.train_s + run.scoring_s)
            if run is last and goes_on and now_s is not None:
                ending, ended_s = None if run.is_cut_off else ending, now_s
            ended_s = max(began_s, min(ended_s, later_s))
            found.append(BusyTime(worker, run.attempt, run.seed, run.dawn, ending, began_s, ended_s))
    return found


def seconds(at: str | None) -> float | None:
    """Return a time of the journal as one of the clock time.time(); None where none was noted."""
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(at or "").timestamp()
    return None


def _between(started: str | None, wall_s: float | None) -> Iterator[Between]:
    """Yield when something took place; nothing where that was not noted."""
    began_s = seconds(started)
    if began_s is not None:
        yield began_s, began_s + (wall_s or 0.0)


def busy_times_of(facts: NightFacts) -> list[BusyTime]:
    """Return when each worker was busy with the runs that have ended."""
    return busy_times(
        RunTimes(
            *(run.worker, one.number, run.seed, run.dawn, run.ending),
            *(seconds(run.began), seconds(run.ended), run.train_s, run.scoring_s),
        )
        for one in facts.attempts
        for run in one.runs
    )


def others_of(facts: NightFacts) -> list[Between]:
    """Return when a night asked for ideas and made dry runs, as far as its facts tell."""
    times = ((seconds(one.started), one) for one in facts.attempts)
    return [
        (at_s - one.asked_s, at_s + one.dry_run_s)
        for at_s, one in times
        if at_s is not None and one.asked_s + one.dry_run_s > 0
    ]


# ---- how busy all were -----------------------------------------------------------------------------------------------


def load(
    busy: Sequence[BusyTime],
    others: Iterable[Between],
    *,
    dry_runs_s: float,
    ideas: int,
    budget_s: float,
    calls: Sequence[NightCall] = (),
) -> Load:
    """Return how busy the workers were.

    others: when the night asked for ideas and made dry runs. ideas: those that were decided. calls: of the night, as
    far as they were recorded; not all workers of a call may have had a run.
    """
    found = stretches(busy, others, budget_s, calls)
    at_work_s = sum(one.length_s for one in found)
    available_s = sum(one.workers * one.length_s for one in found)
    busy_s = sum(span.ended_s - span.began_s for span in busy) + dry_runs_s
    return Load(
        workers=calls[-1].workers if calls else found[-1].workers if found else 1,
        at_work_s=at_work_s,
        busy_s=busy_s,
        utilisation=min(1.0, busy_s / available_s) if available_s else None,
        experiments_an_hour=3600 * ideas / at_work_s if at_work_s else None,
    )


def stretches(
    busy: Iterable[BusyTime], others: Iterable[Between], budget_s: float, calls: Sequence[NightCall] = ()
) -> list[Stretch]:
    """Return the times at which a night was at work, without its pauses; each call begins another."""
    pause_s = max(LEAST_PAUSE_S, budget_s)
    begun = sorted((at_s, one.workers) for one in calls if (at_s := seconds(one.began)) is not None)
    every = [(one.began_s, one.ended_s, one.worker) for one in busy]
    every += [(began_s, ended_s, "") for began_s, ended_s in others]
    found: list[tuple[float, float, int, set[str]]] = []
    for began_s, ended_s, worker in sorted(every):
        call = bisect_right(begun, (began_s + ROUNDED_S, math.inf))  # 0: before the first that was recorded
        if not found or call != found[-1][2] or began_s > found[-1][1] + pause_s:
            found.append((began_s, ended_s, call, set()))
        first_s, last_s, _, names = found[-1]
        found[-1] = first_s, max(last_s, ended_s), call, names
        names.add(worker)
    return [
        Stretch(first_s, last_s, begun[call - 1][1] if call else len(names - {""}) or 1)
        for first_s, last_s, call, names in found
    ]


def load_of(facts: NightFacts) -> Load:
    """Return the load of a night by its facts, up to the end of its last run."""
    return load(
        busy_times_of(facts),
        others_of(facts),
        dry_runs_s=sum(one.dry_run_s for one in facts.attempts),
        ideas=sum(one.status is not None for one in facts.ideas),
        budget_s=facts.budget_s,
        calls=facts.calls,
    )


def load_of_history(
    history: History,
    asks: Iterable[Ask],
    budget_s: float,
    calls: Sequence[NightCall],
    *,
    busy: Collection[str] = (),
    now_s: float | None = None,
) -> Load:
    """Return the load of a night that a driver holds in memory; busy: the workers that have a job now."""
    made = [RunTimes.of(one.number, run) for one in history for run in one.runs]
    dry_runs = [(one.started, one.dry_run.wall_s) for one in history if one.dry_run is not None]
    others = chain(dry_runs, ((ask.started, ask.wall_s) for ask in asks))
    return load(
        busy_times(made, busy, now_s),
        chain.from_iterable(_between(*one) for one in others),
        dry_runs_s=sum(wall_s for _, wall_s in dry_runs),
        ideas=sum(one.is_idea and one.parent is not None and one.status is not None for one in history),
        budget_s=budget_s,
        calls=calls,
    )
