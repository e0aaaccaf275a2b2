"""Tell what each worker of a night has done, and what it does now."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sqlite3 import Row

from agent.experiment import LOCAL, Ask, Ending, History, Night, NightCall
from agent.pools.contention import Contention, contention_of
from agent.records.journal import Journal
from agent.view.facts.load import BusyTime, Load, RunTimes, busy_times, in_order, load, load_of_history

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
EXAMINED = """
    SELECT e.worker, e.attempt, e.seed, e.doing, e.began, r.dawn, a.title
    FROM examinations e JOIN attempts a ON a.number = e.attempt
    JOIN runs r ON r.attempt = e.attempt AND r.seed = e.seed AND r.ending = 'finished'
    WHERE CASE e.doing || ' ' || e.split
        WHEN 'scoring validation' THEN r.score_s WHEN 'scoring holdout' THEN r.holdout
        WHEN 'auditing validation' THEN r.audit ELSE json_extract(r.holdout, '$.audit') END IS NULL
"""  # those without a result


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
        return tuple(one for one in self.workers if one.attempt is not None)


def _each(busy: Iterable[BusyTime]) -> list[WorkerFacts]:
    """Sum up the runs of each worker."""
    spent_s: dict[str, list[float]] = defaultdict(list)
    for one in busy:
        spent_s[one.worker].append(one.ended_s - one.began_s)
    return [WorkerFacts(name, len(lengths), sum(lengths)) for name, lengths in spent_s.items()]


def crew_of(night: Night, history: History, asks: Iterable[Ask], calls: Sequence[NightCall]) -> Crew | None:
    """Return the workers of a night that is over and held in memory; None where it has had one."""
    if len({run.worker for one in history for run in one.runs}) < 2:
        return None
    found = load_of_history(history, asks, night.budget_s, calls)
    each = _each(busy_times(RunTimes.of(one.number, run) for one in history for run in one.runs))
    return Crew(tuple(each), found, contention_of(history))


# ---- of a journal ----------------------------------------------------------------------------------------------------


def read_crew(journal: Journal, now_s: float | None) -> Crew:
    """Return the workers of a night; now_s: the time where the night runs, None where it does not."""
    night = journal.night()
    made = [RunTimes(*row) for row in journal.query(RUNS)]
    (counts,) = journal.query(COUNTS)
    others = [(began_s, ended_s) for began_s, ended_s in journal.query(OTHERS)]
    jobs = {} if now_s is None else read_jobs(journal)
    busy = busy_times(made, jobs.keys(), now_s)
    each = _each(busy)
    each += [WorkerFacts(name, 0, 0.0) for name in jobs.keys() - {one.name for one in each}]  # it has only audited
    return Crew(
        tuple(_with_job(one, jobs.get(one.name)) for one in sorted(each, key=lambda one: in_order(one.name))),
        load(
            busy,
            others,
            dry_runs_s=counts["dry_runs_s"],
            ideas=counts["ideas"],
            budget_s=night.budget_s,
            calls=journal.calls(),
        ),
        contention_of(journal.attempts_among({0})),  # when there were no other runs
    )


def workers_of_call(journal: Journal) -> int:
    """Return how many workers the latest call of a night has; where none was recorded, how many its terms name."""
    calls = journal.calls()
    return calls[-1].workers if calls else _workers_in(journal.night().terms)


def _workers_in(terms: str) -> int:
    with suppress(ValueError, TypeError, AttributeError):  # not by Terms, which imports the judge, and that numpy
        return int(json.loads(terms).get("workers") or 1)
    return 1


def runs_in_flight(workers: int) -> str:
    """Return, in words, the runs that a night ends after, where somebody has asked it to end."""
    return "this run" if workers == 1 else "the runs in flight"


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
    workers = max(workers_of_call(journal), len(jobs))
    return Busy(workers, tuple(jobs.values())) if workers > 1 else None


def read_jobs(journal: Journal) -> Mapping[str, RunNow]:
    """Return the run that each worker is busy with now, by the worker's name; idle ones are left out.

    Who scores and who audits is recorded, except where a night has one worker: there, the last run tells it.
    """
    found = {row["worker"]: _run_now(row, row["doing"], row["began"]) for row in journal.query(EXAMINED)}
    for row in journal.query(LAST_RUNS):
        doing, since = None, None
        if row["ending"] is None:
            doing, since = "training", row["began"]
        elif row["worker"] != LOCAL:
            continue
        elif row["ending"] == Ending.FINISHED and row["score_s"] is None:
            doing, since = "scoring", row["ended"]
        elif row["ending"] == Ending.FINISHED and row["dawn"] and row["dawn"] == row["open_dawn"] and row["is_last"]:
            doing = "scoring" if row["holdout"] is None else "auditing"
        elif row["ending"] == Ending.FINISHED and row["status"] is None and row["is_last"] and row["audit"] is None:
            doing = "auditing"
        if doing is not None:
            found[row["worker"]] = _run_now(row, doing, since)
    return {name: found[name] for name in sorted(found, key=in_order)}


def _run_now(row: Row, doing: str, since: str | None) -> RunNow:
    return RunNow(row["worker"], row["attempt"], row["title"], doing, row["seed"], row["dawn"], since)


def _with_job(one: WorkerFacts, job: RunNow | None) -> WorkerFacts:
    if job is None:
        return one
    now = job.attempt, job.title, job.doing, job.seed, job.dawn, job.since
    return WorkerFacts(one.name, one.runs, one.busy_s, *now)
