"""Follow a night that runs in another process, by its journal and by the metrics of the run at work.

Each look opens the journal to read, and closes it again. So no lock and no transaction lasts, and the night is never
kept waiting.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agent.experiment import LOCAL, Attempt, Doing, History, Kind, Work
from agent.proposers.briefing import Left
from agent.records.journal import Journal
from agent.records.place import run_folder
from agent.records.summary import noise_of_night
from agent.runs.outputs import read_progress
from agent.view.facts.workers import read_busy, read_crew
from agent.view.live.screen import Screen
from agent.view.live.so_far import SoFar

EARLIER = 3  # verdicts that are shown at the beginning


class Activity(StrEnum):
    """Name what a night can be at, beside the jobs of its workers."""

    ASKING = "asking"
    PREPARING = "preparing"  # commit


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold what a night is at, as its journal tells."""

    work: Activity | Doing
    attempt: int
    seed: int | None = None
    dawn: int = 0  # 0: it is night
    began: str | None = None  # ISO 8601, UTC; None where no time was noted

    @classmethod
    def read(cls, journal: Journal) -> "Moment":
        work = journal.work()
        if work:
            return cls(work[0].doing, work[0].attempt, work[0].seed, work[0].dawn, work[0].began)
        *_, attempts = journal.changes()
        if not attempts:
            return cls(Activity.ASKING, 0)
        last = journal.attempt(attempts - 1)
        if last.decision is None:
            return cls(Activity.PREPARING, last.number, began=last.started)
        return cls(Activity.ASKING, last.number + 1, began=last.decisions[-1].at)

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
        self._changes: tuple[int, ...] = ()  # of the journal at the last look
        self._history: History = ()
        self._decision: int | None = None  # the last that was shown
        self._moment: Moment | None = None  # of a night with one worker
        self._jobs: Mapping[str, Work] | None = None  # of one with several; None: it has one, as far as is known
        self._begun: set[int] = set()  # attempts whose beginning was shown

    def look(self, left: Callable[[int], Left]) -> None:
        """Show what is new; left: what is left of the night, by the number of its ideas without attempt 0."""
        with Journal.read(self._path) as journal:
            if self._jobs is None and read_busy(journal) is not None:
                self._jobs = {}
            now, work = Moment.read(journal), journal.work()  # before the attempts that they name
            changes = journal.changes()
            if changes != self._changes:
                self._history = journal.outlines()
                self._show_verdicts()
                load = None if self._jobs is None else read_crew(journal, time.time()).load
                noise = noise_of_night(journal, self._history)
                ideas = sum(attempt.is_edit for attempt in self._history)
                self._screen.stands(SoFar.of(self._history, noise, journal.asks(), left(ideas), load))
            self._changes = changes
            if self._jobs is None:
                self._show_work(now)
            else:
                self._show_jobs(work, self._jobs)
        if self._jobs is None:
            self._show_progress()
        else:
            self._show_progress_of(self._jobs)

    def _show_verdicts(self) -> None:
        since = self._decision
        decided = sorted((one for one in self._history if one.decisions), key=lambda one: one.decisions[-1].id)
        for attempt in decided[-EARLIER:] if since is None else decided:
            if attempt.decisions[-1].id > (since or 0) and _is_verdict(attempt, since or 0):
                parent = None if attempt.parent is None else self._history[attempt.parent]
                self._screen.attempt_settled(attempt, parent)
                self._moment = None
        self._decision = decided[-1].decisions[-1].id if decided else 0

    def _show_work(self, now: Moment) -> None:
        before, self._moment = self._moment, now
        if now == before:
            return
        if now.work is Activity.ASKING:
            self._screen.asking_began(now.attempt)
            return
        attempt = self._history[now.attempt]
        if before is None or before.attempt != now.attempt or before.work is Activity.ASKING:
            self._screen.attempt_began(attempt)
        if isinstance(now.work, Doing):
            self._show_job(Work(LOCAL, now.work, now.attempt, now.began or "", now.seed, now.dawn))

    def _show_job(self, job: Work) -> None:
        attempt = self._history[job.attempt]
        if job.dawn and job.doing is Doing.TRAINING:
            self._screen.dawn_began(None, sum(len(one.dawn_runs(job.dawn)) for one in self._history))
        self._screen.work_began(attempt, job)

    def _show_progress(self) -> None:
        now = self._moment
        assert now is not None
        point = None
        if now.work is Doing.TRAINING and now.seed is not None:
            point = read_progress(run_folder(self._folder, now.attempt, now.seed) / "out")
        self._screen.progressed(point, now.elapsed_s)

    # ---- several workers ---------------------------------------------------------------------------------------------

    def _show_jobs(self, work: Sequence[Work], before: Mapping[str, Work]) -> None:
        """Show what each worker does."""
        self._jobs = {job.worker: job for job in work}
        for job in self._jobs.values():
            if job == before.get(job.worker):
                continue
            if job.attempt not in self._begun:
                self._begun.add(job.attempt)
                self._screen.attempt_began(self._history[job.attempt])
            self._show_job(job)
        for worker in before.keys() - self._jobs.keys():
            self._screen.worker_rests(worker)

    def _show_progress_of(self, jobs: Mapping[str, Work]) -> None:
        for job in jobs.values():
            point = None
            if job.doing is Doing.TRAINING and job.seed is not None:
                point = read_progress(run_folder(self._folder, job.attempt, job.seed) / "out")
            self._screen.progressed(point, seconds_since(job.began), job.worker)


def _is_verdict(attempt: Attempt, since: int) -> bool:
    """Return whether the decisions after this one changed what an attempt is: dawn only adds words to some."""
    if attempt.status is None or attempt.kind is Kind.QUESTION:
        return False
    kinds = [entry.decision.kind for entry in attempt.decisions if entry.id <= since]
    return not kinds or kinds[-1] is not attempt.kind
