"""Tell when each worker of a night was busy, what it does now, and how many experiments an hour that made."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from agent.experiment import Doing, Ending, Work
from agent.pools.contention import Contention, contention_of
from agent.records.record import Record

LEAST_PAUSE_S = 60.0  # where nothing was at work for longer than this and than a run's budget, the night had paused
NUMBERS = re.compile(r"(\d+)")
Between = tuple[float, float]  # two times of the clock time.time()


@dataclass(frozen=True, slots=True)
class Load:
    """Hold how busy the workers of a night were; pauses between its calls do not count."""

    workers: int  # of its latest call
    at_work_s: float  # that the night was at work
    utilisation: float | None  # their share of the time of all workers, 0 to 1; None before the first run
    experiments_an_hour: float | None  # ideas that were decided, dawn's questions not among them


@dataclass(frozen=True, slots=True)
class Worker:
    """Hold a worker, and what it does now."""

    name: str  # such as gpu 1; local for the one worker of a night that has no others
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
    jobs = {} if now_s is None else {job.worker: job for job in work if job.doing is not Doing.DRY_RUN}
    workers = []
    for name in sorted({*busy_times(record), *jobs}, key=in_order):
        job = jobs.get(name)
        workers.append(Worker(name, job, record.attempts[job.attempt].title if job is not None else None))
    contention = contention_of(record.attempts[:1])  # as long as there were no other runs
    return Crew(tuple(workers), load_of(record, now_s), contention)


def in_order(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    parts = NUMBERS.split(name)
    return tuple((text, int(number or -1)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


def busy_times(record: Record, now_s: float | None = None) -> Mapping[str, Sequence[Between]]:
    """Return worker → when it was busy with a run: its training, scoring and audits.

    now_s: the time, up to which runs go on where the night runs. One that the harness did not survive has no length.
    """
    times: dict[str, list[Between]] = defaultdict(list)
    for run in (run for attempt in record.attempts for run in attempt.runs):
        goes_on = run.ending is Ending.RUNNING
        if not run.began or (goes_on and now_s is None):
            continue
        began_s = datetime.fromisoformat(run.began).timestamp()
        ended_s = began_s if run.ended is None else datetime.fromisoformat(run.ended).timestamp()
        # an audit comes later, and is counted here as if it had followed at once
        times[run.worker].append((began_s, max(ended_s, began_s + run.spent_s, now_s or 0.0 if goes_on else 0.0)))
    for own in times.values():
        own.sort()
        # what is scored elsewhere trains again already
        own[:-1] = [(began_s, min(ended_s, next_s)) for (began_s, ended_s), (next_s, _) in pairwise(own)]
    return times


def load_of(record: Record, now_s: float | None = None) -> Load:
    """Return how busy the workers were; now_s: the time where the night runs.

    A pause between two calls of a night is no idleness, and neither is a worker that had no run between two pauses.
    """
    every = sorted((*span, worker) for worker, own in busy_times(record, now_s).items() for span in own)
    pause_s = max(LEAST_PAUSE_S, record.budget_s)
    stretches: list[tuple[float, float, frozenset[str]]] = []  # between pauses: begin, end, and who had a run
    for began_s, ended_s, worker in every:
        first_s, last_s, names = began_s, ended_s, frozenset({worker})
        if stretches and began_s <= stretches[-1][1] + pause_s:
            first_s, before_s, earlier = stretches.pop()
            last_s, names = max(before_s, ended_s), earlier | names
        stretches.append((first_s, last_s, names))
    at_work_s = sum(last_s - first_s for first_s, last_s, _ in stretches)
    available_s = sum((last_s - first_s) * len(names) for first_s, last_s, names in stretches)
    busy_s = sum(ended_s - began_s for began_s, ended_s, _ in every)
    ideas = sum(attempt.status is not None for attempt in record.ideas)
    return Load(
        workers=record.calls[-1].workers if record.calls else len(stretches[-1][2]) if stretches else 1,
        at_work_s=at_work_s,
        utilisation=busy_s / available_s if available_s else None,
        experiments_an_hour=3600 * ideas / at_work_s if at_work_s else None,
    )
