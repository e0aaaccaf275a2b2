"""Tell which worker of a night did what when, how busy all of them were, and how many experiments an hour that made."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from agent.experiment import Ask, Ending, History, Night, Run
from agent.pools.contention import Contention, contention_of
from agent.records.journal import Journal
from agent.view.facts.nouns import NightFacts

LEAST_PAUSE_S = 60.0  # with nothing at work, so long and a run's budget: the night itself was not at work
NUMBERS = re.compile(r"(\d+)")
UNIX = "(julianday({}) - 2440587.5) * 86400"  # in a fifth of Python's time
SCORING_S = """total(score_s) + total(json_extract(audit, '$.wall_s'))
    + total(json_extract(holdout, '$.wall_s')) + total(json_extract(holdout, '$.audit.wall_s'))"""
RUNS = f"""
    SELECT worker, attempt, seed, dawn, ending, {UNIX.format("began")}, {UNIX.format("ended")}, coalesce(wall_s, 0),
        {SCORING_S}, score_s IS NOT NULL
    FROM runs GROUP BY id ORDER BY id
"""
OTHERS = f"""
    WITH others AS (
        SELECT {UNIX.format("started")} AS began_s, coalesce(wall_s, 0) AS wall_s FROM asks
        UNION ALL SELECT {UNIX.format("started")}, coalesce(json_extract(dry_run, '$.wall_s'), 0)
        FROM attempts WHERE dry_run IS NOT NULL
    )
    SELECT began_s, began_s + wall_s FROM others WHERE began_s IS NOT NULL
"""
COUNTS = """
    SELECT (SELECT total(json_extract(dry_run, '$.wall_s')) FROM attempts) AS dry_runs_s,
        (SELECT count(*) FROM attempts WHERE without = '[]' AND parent IS NOT NULL AND (
            SELECT status FROM decisions WHERE attempt = number ORDER BY id DESC LIMIT 1) IS NOT NULL) AS ideas
"""
LAST_RUNS = """
    SELECT r.worker, r.attempt, r.seed, r.dawn, r.began, r.ended, r.ending, r.score_s, r.holdout, r.audit, a.title,
        (SELECT status FROM decisions WHERE attempt = r.attempt ORDER BY id DESC LIMIT 1) AS status,
        (SELECT max(id) FROM runs WHERE attempt = r.attempt) = r.id AS is_last,
        (SELECT max(number) FROM dawns WHERE ended IS NULL) AS open_dawn
    FROM runs r JOIN attempts a ON a.number = r.attempt WHERE r.id IN (SELECT max(id) FROM runs GROUP BY worker)
"""
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
    """Hold a time in which a night was at work without a pause, and the workers that had a run in it."""

    began_s: float  # of the clock time.time()
    ended_s: float
    workers: Collection[str]

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
    def is_several(self) -> bool:
        return max(self.load.workers, len(self.workers)) > 1

    @property
    def at_work(self) -> tuple[WorkerFacts, ...]:
        return tuple(one for one in self.workers if one.attempt is not None)


class RunTimes(NamedTuple):
    """Hold the facts of a run that tell when its worker was busy."""

    worker: str
    attempt: int
    seed: int
    dawn: int
    ending: str | None  # None: it goes on
    began_s: float | None  # of the clock time.time()
    trained_s: float | None  # when its training ended
    train_s: float
    scoring_s: float
    is_scored: bool = True

    @classmethod
    def of(cls, attempt: int, run: Run) -> "RunTimes":
        times = seconds(run.began), seconds(run.ended), run.wall_s, run.spent_s - run.wall_s
        return cls(run.worker, attempt, run.seed, run.dawn, run.ending, *times, is_scored=run.score is not None)

    @property
    def is_cut_off(self) -> bool:
        """Return whether nothing tells when it ended: it goes on, or the harness died during it."""
        return self.trained_s is None and not self.train_s

    @property
    def is_unscored(self) -> bool:
        return self.ending == Ending.FINISHED and not self.is_scored


def in_order(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts names of workers as people do: gpu 2 comes before gpu 10."""
    parts = NUMBERS.split(name)
    return tuple((text, int(number or -1)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


# ---- when each was busy ----------------------------------------------------------------------------------------------


def spans(runs: Iterable[RunTimes], busy: Collection[str] = (), now_s: float | None = None) -> list[BusyTime]:
    """Return when each worker was busy, by worker and then by time.

    busy: workers that have a job now, which is at now_s. A run that the harness did not survive has no known length.
    """
    by_worker: dict[str, list[tuple[float, RunTimes]]] = defaultdict(list)
    for run in runs:
        if run.began_s is not None:
            by_worker[run.worker].append((run.began_s, run))
    found = []
    for worker in sorted(by_worker, key=in_order):
        own = sorted(by_worker[worker], key=itemgetter(0))
        _, last = own[-1]
        goes_on = (last.is_cut_off or last.is_unscored) and worker in busy and now_s is not None
        for (began_s, run), (later_s, _) in pairwise([*own, (math.inf, last)]):
            trained_s = began_s + run.train_s if run.trained_s is None else run.trained_s
            ended_s = now_s if goes_on and run is last and now_s is not None else trained_s + run.scoring_s
            ending = None if goes_on and run is last and run.is_cut_off else run.ending
            ended_s = max(began_s, min(ended_s, later_s))
            found.append(BusyTime(worker, run.attempt, run.seed, run.dawn, ending, began_s, ended_s))
    return found


def seconds(at: str | None) -> float | None:
    """Return a time of the journal as one of the clock time.time(); None where none was noted."""
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(at or "").timestamp()
    return None


def _between(started: str | None, wall_s: float | None) -> Iterator[Between]:
    began_s = seconds(started)
    if began_s is not None:
        yield began_s, began_s + (wall_s or 0.0)


def spans_of(facts: NightFacts) -> list[BusyTime]:
    """Return when each worker was busy with the runs that have ended."""
    return spans(
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
    workers: int = 1,
) -> Load:
    """Return how busy the workers were.

    others: when the night asked for ideas and made dry runs. ideas: those that were decided. workers: how many its
    latest call has, which may not all have had a run; of earlier calls, the runs tell it.
    """
    found = stretches(busy, others, budget_s)
    counts = [len(one.workers) or 1 for one in found]
    if counts:
        counts[-1] = max(counts[-1], workers)
    at_work_s = sum(one.length_s for one in found)
    available_s = sum(count * one.length_s for count, one in zip(counts, found, strict=True))
    busy_s = sum(span.ended_s - span.began_s for span in busy) + dry_runs_s
    return Load(
        workers=counts[-1] if counts else workers,
        at_work_s=at_work_s,
        busy_s=busy_s,
        utilisation=min(1.0, busy_s / available_s) if available_s else None,
        experiments_an_hour=3600 * ideas / at_work_s if at_work_s else None,
    )


def stretches(busy: Iterable[BusyTime], others: Iterable[Between], budget_s: float) -> list[Stretch]:
    """Return the times at which a night was at work, without its pauses."""
    pause_s = max(LEAST_PAUSE_S, budget_s)
    every = [(one.began_s, one.ended_s, one.worker) for one in busy]
    every += [(began_s, ended_s, "") for began_s, ended_s in others]
    found: list[Stretch] = []
    first_s, last_s, names = math.inf, math.inf, set[str]()
    for began_s, ended_s, worker in sorted(every):
        if began_s > last_s + pause_s:
            found.append(Stretch(first_s, last_s, names))
            first_s, last_s, names = began_s, ended_s, set()
        first_s, last_s = min(first_s, began_s), ended_s if last_s == math.inf else max(last_s, ended_s)
        if worker:
            names.add(worker)
    return [*found, Stretch(first_s, last_s, names)] if every else []


def load_of(facts: NightFacts) -> Load:
    """Return the load of a night by its facts, up to the end of its last run."""
    return load(
        spans_of(facts),
        others_of(facts),
        dry_runs_s=sum(one.dry_run_s for one in facts.attempts),
        ideas=sum(one.status is not None for one in facts.ideas),
        budget_s=facts.budget_s,
    )


def load_of_history(
    history: History, asks: Iterable[Ask], budget_s: float, *, busy: Collection[str], workers: int, now_s: float
) -> Load:
    """Return the load of a night that a driver holds in memory; busy: the workers that have a job now."""
    made = [RunTimes.of(one.number, run) for one in history for run in one.runs]
    dry_runs = [(one.started, one.dry_run.wall_s) for one in history if one.dry_run is not None]
    others = chain(dry_runs, ((ask.started, ask.wall_s) for ask in asks))
    return load(
        spans(made, busy, now_s),
        chain.from_iterable(_between(*one) for one in others),
        dry_runs_s=sum(wall_s for _, wall_s in dry_runs),
        ideas=sum(one.is_idea and one.parent is not None and one.status is not None for one in history),
        budget_s=budget_s,
        workers=workers,
    )


def _each(busy: Iterable[BusyTime]) -> list[WorkerFacts]:
    """Sum up the runs of each worker."""
    spent_s: dict[str, list[float]] = defaultdict(list)
    for one in busy:
        spent_s[one.worker].append(one.ended_s - one.began_s)
    return [WorkerFacts(name, len(lengths), sum(lengths)) for name, lengths in spent_s.items()]


def crew_of(night: Night, history: History, asks: Iterable[Ask]) -> Crew | None:
    """Return the workers of a night that is over and held in memory; None where it has had one."""
    if len({run.worker for one in history for run in one.runs}) < 2:
        return None
    found = load_of_history(history, asks, night.budget_s, busy=(), workers=workers_meant(night.terms), now_s=0.0)
    each = _each(spans(RunTimes.of(one.number, run) for one in history for run in one.runs))
    return Crew(tuple(each), found, contention_of(history))


# ---- of a journal ----------------------------------------------------------------------------------------------------


def read_crew(journal: Journal, now_s: float | None) -> Crew:
    """Return the workers of a night; now_s: the time where the night runs, None where it does not."""
    night = journal.night()
    made = [RunTimes(*row) for row in journal.query(RUNS)]
    (counts,) = journal.query(COUNTS)
    others = [(began_s, ended_s) for began_s, ended_s in journal.query(OTHERS)]
    jobs = {} if now_s is None else read_jobs(journal)
    busy = spans(made, jobs.keys(), now_s)
    return Crew(
        tuple(_with_job(one, jobs.get(one.name)) for one in _each(busy)),
        load(
            busy,
            others,
            dry_runs_s=counts["dry_runs_s"],
            ideas=counts["ideas"],
            budget_s=night.budget_s,
            workers=max(workers_meant(night.terms), len(jobs)),
        ),
        contention_of(journal.attempts_among({0})),  # when there were no other runs
    )


def workers_meant(terms: str) -> int:
    """Return how many workers the terms of a night name; 1 where they name none."""
    with suppress(ValueError, TypeError, AttributeError):  # not by Terms, which imports the judge, and that numpy
        return int(json.loads(terms).get("workers") or 1)
    return 1


@dataclass(frozen=True, slots=True)
class RunNow:
    """Hold the run that a worker is busy with."""

    worker: str
    attempt: int
    title: str
    doing: str  # training, scoring or auditing
    seed: int
    dawn: int
    since: str | None  # None: not noted


@dataclass(frozen=True, slots=True)
class Busy:
    """Hold the runs that several workers are busy with now."""

    workers: int  # those that rest among them
    jobs: tuple[RunNow, ...]  # in the order of the workers' names


def read_busy(journal: Journal) -> Busy | None:
    """Return what several workers do now; None where the night has one, as far as is known."""
    jobs = read_jobs(journal)
    workers = max(workers_meant(journal.night().terms), len(jobs))
    return Busy(workers, tuple(jobs.values())) if workers > 1 else None


def read_jobs(journal: Journal) -> Mapping[str, RunNow]:
    """Return the worker → its run, of all that are busy with one, by the last run of each."""
    found = {}
    for row in sorted(journal.query(LAST_RUNS), key=lambda row: in_order(row["worker"])):
        doing, since = None, None
        if row["ending"] is None:
            doing, since = "training", row["began"]
        elif row["ending"] == Ending.FINISHED and row["score_s"] is None:
            doing, since = "scoring", row["ended"]
        elif row["ending"] == Ending.FINISHED and row["dawn"] and row["dawn"] == row["open_dawn"] and row["is_last"]:
            doing = "scoring" if row["holdout"] is None else "auditing"
        elif row["ending"] == Ending.FINISHED and row["status"] is None and row["is_last"] and row["audit"] is None:
            doing = "auditing"
        if doing is not None:
            facts = row["attempt"], row["title"], doing, row["seed"], row["dawn"], since
            found[row["worker"]] = RunNow(row["worker"], *facts)
    return found


def _with_job(one: WorkerFacts, job: RunNow | None) -> WorkerFacts:
    if job is None:
        return one
    now = job.attempt, job.title, job.doing, job.seed, job.dawn, job.since
    return WorkerFacts(one.name, one.runs, one.busy_s, *now)
