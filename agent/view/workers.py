"""Tell when each worker of a night was busy, what it does now, and how many experiments an hour that made."""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from agent.experiment import Doing, Ending, NightCall, Work
from agent.pools.contention import Contention, contention_of
from agent.records.journal import Journal
from agent.records.record import Record

LEAST_PAUSE_S = 60.0  # where nothing was at work for longer than this and than a run's budget, the night had paused
ROUNDED_S = 0.001  # SQLite's times may be earlier by so much: what begins in a call's second is the call's
NUMBERS = re.compile(r"(\d+)")
Between = tuple[float, float]  # two times of the clock time.time()


class BusyTime(NamedTuple):
    """Hold when a worker was busy with a run: with its training, and with the scoring and the audits after it."""

    worker: str
    began_s: float  # of the clock time.time()
    ended_s: float
    attempt: int
    seed: int
    dawn: int
    ending: str | None  # None: it goes on


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


@dataclass(frozen=True, slots=True)
class Worker:
    """Hold what one worker has done, and what it does now."""

    name: str  # such as gpu 1; local for the one worker of a night that has no others
    runs: int  # that it has begun
    busy_s: float  # training, scoring and audits, by the journal
    work: Work | None = None  # what it does now
    title: str | None = None  # of the attempt that it works on


@dataclass(frozen=True, slots=True)
class Crew:
    """Hold the workers of a night, and how busy they were."""

    workers: tuple[Worker, ...]
    load: Load
    contention: Contention | None = None  # None: attempt 0 was not measured both alone and beside itself

    @property
    def has_several(self) -> bool:
        return max(self.load.workers, len(self.workers)) > 1

    @property
    def at_work(self) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if worker.work is not None)


def crew_of(record: Record, work: Iterable[Work] = (), now_s: float | None = None) -> Crew:
    """Return the workers of a night; now_s: the time where the night runs, None where it does not."""
    jobs = {} if now_s is None else {job.worker: job for job in work if job.doing is not Doing.REHEARSING}
    spent_s: dict[str, list[float]] = defaultdict(list)
    for busy in busy_times(record, now_s):
        spent_s[busy.worker].append(busy.ended_s - busy.began_s)
    workers = []
    for name in sorted({*spent_s, *jobs}, key=in_order):
        job = jobs.get(name)
        title = record.attempts[job.attempt].title if job is not None else None
        workers.append(Worker(name, len(spent_s[name]), sum(spent_s[name]), job, title))
    contention = contention_of(record.attempts[:1])  # as long as there were no other runs
    return Crew(tuple(workers), load_of(record, now_s), contention)


def workers_of_call(journal: Journal) -> int:
    """Return how many workers the latest call of a night has; where none was recorded, how many its terms name."""
    calls = journal.calls()
    return calls[-1].workers if calls else journal.night().terms.workers


def runs_in_flight(workers: int) -> str:
    """Return, in words, the runs that a night ends after, where somebody has asked it to end."""
    return "this run" if workers == 1 else "the runs in flight"


def in_order(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    parts = NUMBERS.split(name)
    return tuple((text, int(number or -1)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


# ---- when each was busy ----------------------------------------------------------------------------------------------


def busy_times(record: Record, now_s: float | None = None) -> list[BusyTime]:
    """Return when each worker was busy, by worker and then by time.

    now_s: the time, up to which runs go on where the night runs. One that the harness did not survive has no length.
    """
    by_worker: dict[str, list[BusyTime]] = defaultdict(list)
    for attempt in record.attempts:
        for run in attempt.runs:
            began_s, goes_on = seconds(run.began), run.ending is Ending.RUNNING
            if began_s is None or (goes_on and now_s is None):
                continue
            # an audit comes later, and is counted here as if it had followed at once
            ended_s = max(seconds(run.ended) or 0.0, began_s + run.spent_s, now_s or 0.0 if goes_on else 0.0)
            of = attempt.number, run.seed, run.dawn, None if goes_on else run.ending
            by_worker[run.worker].append(BusyTime(run.worker, began_s, ended_s, *of))
    found = []
    for worker in sorted(by_worker, key=in_order):
        own = sorted(by_worker[worker], key=lambda busy: busy.began_s)
        begins_s = [*(busy.began_s for busy in own[1:]), math.inf]
        for busy, next_s in zip(own, begins_s, strict=True):  # what is scored elsewhere trains again already
            found.append(busy._replace(ended_s=max(busy.began_s, min(busy.ended_s, next_s))))
    return found


def seconds(at: str | None) -> float | None:
    """Return a time of the journal as one of the clock time.time(); None where none was noted."""
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(at or "").timestamp()
    return None


def others_of(record: Record) -> list[Between]:
    """Return when a night asked for ideas and made dry runs, as far as its record tells."""
    asked = [(ask.started, ask.wall_s) for ask in record.asks]
    tried = [(one.started, one.dry_run.wall_s) for one in record.attempts if one.dry_run is not None]
    return [(at_s, at_s + spent_s) for at, spent_s in (*asked, *tried) if (at_s := seconds(at)) is not None]


# ---- how busy all were -----------------------------------------------------------------------------------------------


def load_of(record: Record, now_s: float | None = None) -> Load:
    """Return how busy the workers were; now_s: the time where the night runs."""
    busy, calls = busy_times(record, now_s), record.calls
    found = stretches(busy, others_of(record), record.budget_s, calls)
    at_work_s = sum(one.length_s for one in found)
    available_s = sum(one.workers * one.length_s for one in found)
    busy_s = sum(span.ended_s - span.began_s for span in busy) + sum(
        one.dry_run.wall_s for one in record.attempts if one.dry_run
    )
    ideas = sum(one.status is not None for one in record.ideas)
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
    """Return the times at which a night was at work, without its pauses; each call begins another.

    others: when the night asked for ideas and made dry runs. calls: of the night, as far as they were recorded; not all
    workers of a call may have had a run.
    """
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
