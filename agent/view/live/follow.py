"""Follow a night that runs in another process, by its journal and by the metrics of the run at work.

The journal stays open to read, without a transaction between two looks, so the night is never kept waiting. A look at a
journal in which nothing was committed since reads nothing of it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.experiment import LOCAL, Attempt, Doing, History, Kind, Work
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import run_folder
from agent.records.record import of_journal
from agent.records.summary import summary_of
from agent.runs.outputs import read_progress
from agent.view.live.panel import Standing
from agent.view.live.screen import Screen
from agent.view.workers import load_of, running, workers_of_call

EARLIER = 3  # verdicts that are shown at the beginning


ASKING, PREPARING = "asking", "preparing"  # what a night does beside the jobs of its workers


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold what a night is at, as its journal tells."""

    doing: str  # a Doing's word, ASKING or PREPARING
    attempt: int
    seed: int | None = None
    began: str | None = None  # ISO 8601, UTC; None where no time was noted

    @classmethod
    def read(cls, journal: Journal) -> "Moment":
        work = journal.work()
        if work:
            return cls(work[0].doing, work[0].attempt, work[0].seed, work[0].began)
        *_, attempts = journal.changes()
        return cls.after(journal.attempt(attempts - 1) if attempts else None)

    @classmethod
    def after(cls, last: Attempt | None) -> "Moment":
        """Return what a night does after its last attempt was begun, while no worker has a job."""
        if last is None:
            return cls(ASKING, 0)
        if last.decision is None:
            return cls(PREPARING, last.number, began=last.started)
        return cls(ASKING, last.number + 1, began=last.decisions[-1].at)


def seconds_since(began: str | None) -> float | None:
    """Return the seconds since a time of the journal; None where no time was noted."""
    if not began:
        return None
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds())


class Follower:
    """Show on a screen what has happened in a night since the last look."""

    def __init__(self, folder: Path, journal: Journal, screen: Screen) -> None:
        self._folder, self._journal, self._screen = folder, journal, screen
        self._version: int | None = None  # of the journal at the last look
        self._changes: tuple[int, ...] = ()
        self._work: tuple[Work, ...] = ()
        self._history: History = ()
        self._decision: int | None = None  # the last that was shown
        self._moment: Moment | None = None
        self._jobs: dict[str, Work] = {}
        self._begun: int | None = None  # the attempt whose beginning was shown last

    def look(self, left: Callable[[int], Left]) -> None:
        """Show what is new; raise NightError where the journal was removed.

        left: what is left of the night, by the number of its ideas without attempt 0.
        """
        self._journal.check_in_place()
        version = self._journal.data_version()
        if version != self._version:
            self._version = version
            self._work, changes = self._journal.work(), self._journal.changes()  # before the attempts that they name
            if changes != self._changes:
                self._changes, self._history = changes, self._journal.outlines()
                self._show_verdicts()
                self._show_standing(left)
        work = self._work
        self._show_jobs(work)
        for job in work:
            point = None
            if job.doing is Doing.TRAINING and job.seed is not None:
                point = read_progress(run_folder(self._folder, job.attempt, job.seed) / "out")
            self._screen.progressed(point, seconds_since(job.began), job.worker)
        if not work:
            self._show_moment(Moment.after(self._history[-1] if self._history else None))

    def _show_standing(self, left: Callable[[int], Left]) -> None:
        journal, work = self._journal, self._work
        record = of_journal(journal)
        load = (
            load_of(record, running(work, record), time.time())
            if max(workers_of_call(journal), len(work)) > 1
            else None
        )
        self._screen.stands(Standing.of(summary_of(record), left(len(record.ideas)), load))

    def _show_verdicts(self) -> None:
        since = self._decision
        decided = sorted((one for one in self._history if one.decisions), key=lambda one: one.decisions[-1].id)
        for attempt in decided[-EARLIER:] if since is None else decided:
            if attempt.decisions[-1].id > (since or 0) and _is_verdict(attempt, since or 0):
                parent = None if attempt.parent is None else self._history[attempt.parent]
                self._screen.attempt_settled(attempt, parent)
                self._moment = None
        self._decision = decided[-1].decisions[-1].id if decided else 0

    def _show_jobs(self, work: tuple[Work, ...]) -> None:
        """Show what each worker does."""
        before, self._jobs = self._jobs, {job.worker: job for job in work}
        for job in work:
            if job == before.get(job.worker):
                continue
            attempt, self._moment = self._history[job.attempt], None
            if self._begun is None or job.attempt > self._begun:
                self._begun = job.attempt
                self._screen.attempt_began(attempt)
            if job.dawn and job.doing is Doing.TRAINING:
                self._screen.dawn_began(None, sum(len(one.dawn_runs(job.dawn)) for one in self._history))
            self._screen.work_began(attempt, job)
        for worker in before.keys() - self._jobs.keys():
            self._screen.worker_rests(worker)

    def _show_moment(self, now: Moment) -> None:
        """Show what the night does while no worker has a job."""
        if now != self._moment:
            self._moment = now
            if now.doing == ASKING:
                self._screen.asking_began(now.attempt)
            else:
                self._begun = now.attempt
                self._screen.attempt_began(self._history[now.attempt])
        self._screen.progressed(None, seconds_since(now.began), LOCAL)


def _is_verdict(attempt: Attempt, since: int) -> bool:
    """Return whether the decisions after this one changed what an attempt is: dawn only adds words to some."""
    if attempt.status is None or attempt.kind is Kind.QUESTION:
        return False
    kinds = [entry.decision.kind for entry in attempt.decisions if entry.id <= since]
    return not kinds or kinds[-1] is not attempt.kind
