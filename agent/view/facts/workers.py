"""Tell what each worker of a night has done, and what it does now."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.experiment import Ask, Doing, History, Night, NightCall, Work
from agent.pools.contention import Contention, contention_of
from agent.records.journal import Journal
from agent.records.terms import Terms
from agent.view.facts.load import Load, RunTimes, busy_times, in_order, load_of_history


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Hold what one worker has done, and what it does now; without an attempt, it has no run now."""

    name: str
    runs: int
    busy_s: float
    attempt: int | None = None
    title: str | None = None
    doing: str | None = None  # training, scoring or auditing
    seed: int | None = None
    dawn: int | None = None
    since: str | None = None  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class Crew:
    """Hold the workers of a night, and how busy they were."""

    workers: tuple[WorkerFacts, ...]
    load: Load
    contention: Contention | None = None  # None: attempt 0 was not measured both alone and beside itself

    @property
    def has_several(self) -> bool:
        return max(self.load.workers, len(self.workers)) > 1

    @property
    def at_work(self) -> tuple[WorkerFacts, ...]:
        return tuple(worker for worker in self.workers if worker.attempt is not None)


def crew_of(
    night: Night,
    history: History,
    asks: Iterable[Ask],
    calls: Sequence[NightCall],
    work: Iterable[Work] = (),
    now_s: float | None = None,
) -> Crew:
    """Return the workers of a night; now_s: the time where the night runs, None where it does not."""
    jobs = {} if now_s is None else {job.worker: job for job in work if job.doing is not Doing.REHEARSING}
    spent_s: dict[str, list[float]] = defaultdict(list)
    times = [RunTimes.of(attempt.number, run) for attempt in history for run in attempt.runs]
    for busy in busy_times(times, jobs.keys(), now_s):
        spent_s[busy.worker].append(busy.ended_s - busy.began_s)
    workers = (
        _worker(name, spent_s.get(name, ()), jobs.get(name), history)
        for name in sorted({*spent_s, *jobs}, key=in_order)
    )
    load = load_of_history(history, asks, night.budget_s, calls, busy=jobs.keys(), now_s=now_s)
    return Crew(tuple(workers), load, contention_of(history[:1]))  # as long as there were no other runs


def read_crew(journal: Journal, now_s: float | None) -> Crew:
    """Return the workers of a night as its journal tells; now_s: the time where the night runs, else None."""
    work = journal.work()  # before the attempts that it names
    return crew_of(journal.night(), journal.outlines(), journal.asks(), journal.calls(), work, now_s)


def _worker(name: str, spent_s: Sequence[float], job: Work | None, history: History) -> WorkerFacts:
    if job is None:
        return WorkerFacts(name, len(spent_s), sum(spent_s))
    title = history[job.attempt].proposal.title
    now = job.attempt, title, job.doing, job.seed, job.dawn, job.began
    return WorkerFacts(name, len(spent_s), sum(spent_s), *now)


def workers_of_call(journal: Journal) -> int:
    """Return how many workers the latest call of a night has; where none was recorded, how many its terms name."""
    calls = journal.calls()
    return calls[-1].workers if calls else Terms.from_json(journal.night().terms).workers


def runs_in_flight(workers: int) -> str:
    """Return, in words, the runs that a night ends after, where somebody has asked it to end."""
    return "this run" if workers == 1 else "the runs in flight"


@dataclass(frozen=True, slots=True)
class Busy:
    """Hold what several workers do now."""

    workers: int  # those that rest among them
    jobs: tuple[Work, ...]  # in the order of the workers' names


def read_busy(journal: Journal) -> Busy | None:
    """Return what several workers do now; None where the night has one, as far as is known."""
    jobs = sorted(journal.work(), key=lambda job: in_order(job.worker))
    workers = max(workers_of_call(journal), len(jobs))
    return Busy(workers, tuple(jobs)) if workers > 1 else None
