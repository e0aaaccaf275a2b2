"""Name the workers of a night, and tell what each does now."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.experiment import Work
from agent.pools.leases import slowdown_of
from agent.records.record import Record

NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Worker:
    """Hold a worker, and what it does now."""

    name: str  # such as gpu 1; local for the one worker of a night that has no others
    work: Work | None  # what it does now
    title: str | None  # of the attempt that it works on


@dataclass(frozen=True, slots=True)
class Crew:
    """Hold the workers of a night."""

    count: int  # that its latest call has
    workers: tuple[Worker, ...]  # that had a run in any of its calls
    slowdown: float | None  # share of its speed that attempt 0 lost beside itself; null: it did not run so

    @property
    def at_work(self) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if worker.work is not None)


def crew_of(record: Record, work: Iterable[Work] = ()) -> Crew:
    """Return the workers of a night; work: what they do, where it runs."""
    jobs = {job.worker: job for job in work}
    names = {run.worker for attempt in record.attempts for run in attempt.runs} | jobs.keys()
    workers = []
    for name in sorted(names, key=in_order):
        job = jobs.get(name)
        workers.append(Worker(name, job, record.attempts[job.attempt].title if job is not None else None))
    count = record.night.terms.workers if record.is_here else max(1, len(names))
    return Crew(count, tuple(workers), slowdown_of(record.attempts))


def in_order(name: str) -> tuple[str, ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    return tuple(part.rjust(9) if part.isdigit() else part for part in NUMBERS.split(name))
