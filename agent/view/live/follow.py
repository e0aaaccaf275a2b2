"""Follow a night that runs in another process, by its journal and by the metrics of the run at work.

Each look opens the journal to read, and closes it again. So no lock and no transaction lasts, and the night is never
kept waiting.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agent.experiment import Attempt, Ending, Kind, Left
from agent.records.journal import Journal
from agent.records.place import run_folder
from agent.runs.train import read_progress
from agent.view.facts.workers import RunNow, read_busy, read_crew, read_jobs
from agent.view.live.screen import Screen
from agent.view.live.so_far import SoFar

EARLIER = 3  # verdicts that are shown at the beginning
MARKS = """
    SELECT (SELECT coalesce(max(id), 0) FROM decisions) AS decision,
        (SELECT coalesce(max(id), 0) FROM asks) AS ask,
        (SELECT count(*) FROM attempts WHERE without = '[]' AND parent IS NOT NULL) AS ideas
"""
LATEST = f"SELECT attempt FROM decisions GROUP BY attempt ORDER BY max(id) DESC LIMIT {EARLIER}"
LAST_RUN = "SELECT * FROM runs ORDER BY id DESC LIMIT 1"
LAST_ATTEMPT = """
    SELECT number, started,
        (SELECT status FROM decisions WHERE attempt = number ORDER BY id DESC LIMIT 1) AS status,
        (SELECT at FROM decisions ORDER BY id DESC LIMIT 1) AS decided,
        (SELECT max(number) FROM dawns WHERE ended IS NULL) AS dawn
    FROM attempts ORDER BY number DESC LIMIT 1
"""


class Activity(StrEnum):
    ASKING = "asking"
    PREPARING = "preparing"  # commit, dry run
    TRAINING = "training"
    SCORING = "scoring"
    AUDITING = "auditing"


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold what a night is at, as its journal tells."""

    work: Activity
    attempt: int
    seed: int | None = None
    dawn: int = 0  # 0: it is night
    began: str | None = None  # ISO 8601, UTC; None where no time was noted

    @classmethod
    def read(cls, journal: Journal) -> "Moment":
        runs, attempts = journal.query(LAST_RUN), journal.query(LAST_ATTEMPT)
        if not attempts:
            return cls(Activity.ASKING, 0)
        last, run = attempts[0], runs[0] if runs else None
        if run is not None and run["ending"] is None:
            return cls(Activity.TRAINING, run["attempt"], run["seed"], run["dawn"], run["began"])
        if run is not None and run["ending"] == Ending.FINISHED:
            if run["val_bpb"] is None and run["failure"] is None:
                return cls(Activity.SCORING, run["attempt"], run["seed"], run["dawn"], run["ended"])
            is_open = last["status"] is None and last["number"] == run["attempt"]
            if is_open or (last["dawn"] is not None and run["dawn"]):
                work = Activity.SCORING if run["dawn"] and run["holdout"] is None else Activity.AUDITING
                return cls(work, run["attempt"], run["seed"], run["dawn"])
        if last["status"] is None:
            return cls(Activity.PREPARING, last["number"], began=last["started"])
        return cls(Activity.ASKING, last["number"] + 1, began=last["decided"])

    @property
    def elapsed_s(self) -> float | None:
        return seconds_since(self.began)


def seconds_since(began: str | None) -> float | None:
    """Return the seconds since a time of the journal; None where no time was noted."""
    if began is None:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds())


class Follower:
    """Show on a screen what has happened in a night since the last look."""

    def __init__(self, folder: Path, journal: Path, screen: Screen) -> None:
        self._folder, self._path, self._screen = folder, journal, screen
        self._decision: int | None = None  # the last that was shown
        self._ask = 0
        self._moment: Moment | None = None  # of a night with one worker
        self._jobs: Mapping[str, RunNow] | None = None  # of one with several; None: it has one, as far as is known
        self._begun: set[int] = set()  # attempts whose beginning was shown

    def look(self, left: Callable[[int], Left]) -> None:
        """Show what is new; left: what is left of the night, by the number of its ideas without attempt 0."""
        with Journal.read(self._path) as journal:
            if self._jobs is None and read_busy(journal) is not None:
                self._jobs = {}
            (marks,) = journal.query(MARKS)
            if self._decision != marks["decision"]:
                self._show_verdicts(journal)
            if (self._decision, self._ask) != (marks["decision"], marks["ask"]):
                load = None if self._jobs is None else read_crew(journal, time.time()).load
                self._screen.stands(SoFar.read(journal, left(marks["ideas"]), load))
            self._decision, self._ask = marks["decision"], marks["ask"]
            if self._jobs is None:
                self._show_work(journal)
            else:
                self._show_jobs(journal, self._jobs)
        if self._jobs is None:
            self._show_progress()
        else:
            self._show_progress_of(self._jobs)

    def _show_verdicts(self, journal: Journal) -> None:
        since = self._decision
        new = LATEST if since is None else f"SELECT DISTINCT attempt FROM decisions WHERE id > {since:d}"
        found = journal.attempts_among({row["attempt"] for row in journal.query(new)})
        parents = journal.attempts_among({one.parent for one in found if one.parent is not None})
        known = {one.number: one for one in (*parents, *found)}
        for attempt in sorted(found, key=lambda one: one.decisions[-1].id):
            if _is_verdict(attempt, since or 0):
                self._screen.attempt_settled(attempt, None if attempt.parent is None else known[attempt.parent])
                self._moment = None

    def _show_work(self, journal: Journal) -> None:
        now = Moment.read(journal)
        before, self._moment = self._moment, now
        if now == before:
            return
        if now.work is Activity.ASKING:
            self._screen.asking_began(now.attempt)
            return
        (attempt,) = journal.attempts_among({now.attempt})
        if before is None or before.attempt != now.attempt or before.work is Activity.ASKING:
            self._screen.attempt_began(attempt)
        match now.work:
            case Activity.PREPARING:
                self._screen.dry_run_began(attempt)
            case Activity.TRAINING:
                assert now.seed is not None
                if now.dawn:
                    self._screen.dawn_began(None, _runs_of_dawn(journal, now.dawn) - 1)
                self._screen.run_began(attempt, now.seed)
            case Activity.SCORING:
                self._screen.scoring_began(attempt)
            case Activity.AUDITING:
                self._screen.audit_began(attempt)

    def _show_progress(self) -> None:
        now = self._moment
        assert now is not None
        point = None
        if now.work is Activity.TRAINING and now.seed is not None:
            point = read_progress(run_folder(self._folder, now.attempt, now.seed) / "out")
        self._screen.progressed(point, now.elapsed_s)

    # ---- several workers ---------------------------------------------------------------------------------------------

    def _show_jobs(self, journal: Journal, before: Mapping[str, RunNow]) -> None:
        """Show what each worker does; dry runs are in no journal before they have ended."""
        now = self._jobs = read_jobs(journal)
        attempts = {one.number: one for one in journal.attempts_among({job.attempt for job in now.values()})}
        for job in now.values():
            if job == before.get(job.worker):
                continue
            attempt = attempts[job.attempt]
            if attempt.number not in self._begun:
                self._begun.add(attempt.number)
                self._screen.attempt_began(attempt)
            match Activity(job.doing):
                case Activity.TRAINING:
                    if job.dawn:
                        self._screen.dawn_began(None, _runs_of_dawn(journal, job.dawn) - 1)
                    self._screen.run_began(attempt, job.seed, job.worker)
                case Activity.SCORING:
                    self._screen.scoring_began(attempt, job.worker)
                case Activity.AUDITING:
                    self._screen.audit_began(attempt, job.worker)
        for worker in before.keys() - now.keys():
            self._screen.worker_rests(worker)

    def _show_progress_of(self, jobs: Mapping[str, RunNow]) -> None:
        for job in jobs.values():
            trains = job.doing == Activity.TRAINING
            point = read_progress(run_folder(self._folder, job.attempt, job.seed) / "out") if trains else None
            self._screen.progressed(point, seconds_since(job.since), job.worker)


def _runs_of_dawn(journal: Journal, dawn: int) -> int:
    return int(journal.query(f"SELECT count(*) AS runs FROM runs WHERE dawn = {dawn:d}")[0]["runs"])


def _is_verdict(attempt: Attempt, since: int) -> bool:
    """Return whether the decisions after this one changed what an attempt is: dawn only adds words to some."""
    if attempt.status is None or attempt.kind is Kind.QUESTION:
        return False
    kinds = [entry.decision.kind for entry in attempt.decisions if entry.id <= since]
    return not kinds or kinds[-1] is not attempt.kind
