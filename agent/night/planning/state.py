"""Hold in memory what a night knows: read from its journal once, and changed only together with it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from agent.clock import boot_id, utc_now
from agent.experiment import (
    LOCAL,
    Ask,
    Attempt,
    Audit,
    Dawn,
    Decision,
    DryRun,
    Ending,
    Kind,
    Proposal,
    Run,
    Score,
    Status,
    incumbent,
)
from agent.night.limits import Pace, expected_run_s
from agent.records.journal import Journal
from agent.runs.score import Split

Found = TypeVar("Found")


class State:
    """Write every change to the journal first, then read the changed attempt back from there.

    So a night that is resumed after a kill has exactly the state of the killed one. Only the driver's thread may use
    it.
    """

    def __init__(self, journal: Journal, budget_s: float, patience_s: float = 0.0, workers: int = 1) -> None:
        self._journal, self._budget_s, self._patience_s = journal, budget_s, patience_s
        self._found: dict[str, Any] = {}  # answers that hold as long as no run, score or decision is added
        self.workers = max(1, workers)
        self.asks: tuple[Ask, ...] = ()
        self.dawns: tuple[Dawn, ...] = journal.dawns()
        self._asked_s: dict[int, float] = defaultdict(float)
        self._longest_asking_s = 0.0
        self._note_asks(journal.asks())
        self._read_all()

    def _read_all(self) -> None:
        self._found.clear()
        self.ideas = 0  # attempt 0 among them
        self.unsettled: set[int] = set()
        self.kept: set[int] = set()
        self.overtaken: set[int] = set()
        self.merges: dict[int, int] = {}  # which overtaken attempt another one carries onto the incumbent
        self.loose: set[int] = set()  # whose runs have to be scored or audited still
        self.at_dawn: set[int] = set()  # that have runs at a dawn
        self.runs_at_dawns = 0
        self._longest_run_s: float | None = None
        self._longest_dry_run_s = 0.0
        self.attempts: tuple[Attempt, ...] = self._journal.attempts()
        for attempt in self.attempts:
            self._count(attempt)

    # ---- questions ---------------------------------------------------------------------------------------------------

    @property
    def first(self) -> Attempt:
        """Return attempt 0; raise IndexError before there is one."""
        return self.attempts[0]

    @property
    def best(self) -> Attempt | None:
        """Return the incumbent."""
        return incumbent(self._of(self.kept))

    def parent_of(self, attempt: Attempt) -> Attempt | None:
        """Return the attempt that this one was made from and is compared with; None for attempt 0."""
        return None if attempt.parent is None else self.attempts[attempt.parent]

    def others(self, number: int) -> tuple[Attempt, ...]:
        """Return all attempts except one, which is judged in the light of them. Attempts may end in any order."""
        return self.attempts[:number] + self.attempts[number + 1 :]

    def _of(self, numbers: Iterable[int]) -> list[Attempt]:
        return [self.attempts[number] for number in sorted(numbers)]

    @property
    def last_dawn(self) -> Dawn | None:
        return self.dawns[-1] if self.dawns else None

    @property
    def pace(self) -> Pace:
        return Pace(
            run_s=expected_run_s(self._budget_s) if self._longest_run_s is None else self._longest_run_s,
            asking_s=self._longest_asking_s if self.asks else self._patience_s,
            dry_run_s=self._longest_dry_run_s,
            dawn_runs=self.runs_at_dawns,
            workers=self.workers,
        )

    def once(self, question: str, find: Callable[[], Found]) -> Found:
        """Return the answer of find(), which is kept until a run, a score or a decision is recorded."""
        if question not in self._found:
            self._found[question] = find()
        found: Found = self._found[question]
        return found

    def check_in_place(self) -> None:
        """Raise NightError if the journal was removed or replaced."""
        self._journal.check_in_place()

    # ---- records -----------------------------------------------------------------------------------------------------

    def add(self, parent: int | None, proposal: Proposal) -> Attempt:
        number = len(self.attempts)
        self._journal.add_attempt(number, parent, proposal, utc_now())
        self.attempts = (*self.attempts, self._journal.attempt(number))
        self._count(self.attempts[number])
        return self.attempts[number]

    def record_commit(self, number: int, sha: str) -> None:
        self._journal.record_commit(number, sha)
        self._read(number, is_news=False)

    def record_dry_run(self, number: int, found: DryRun) -> None:
        self._journal.record_dry_run(number, found)
        self._read(number)

    def start_run(self, number: int, seed: int, dawn: int, worker: str = LOCAL) -> int:
        """Return the run's id; until it ends it is known as lost."""
        run_id = self._journal.start_run(number, seed, boot_id(), dawn=dawn, worker=worker)
        self._read(number, is_news=False)
        return run_id

    def start_examination(self, worker: str, doing: str, number: int, seed: int, split: Split) -> None:
        """Record who scores or audits a run's weights, where that may be another worker than the one that trained."""
        if worker != LOCAL:
            self._journal.start_examination(worker, doing, number, seed, split)

    def end_run(self, number: int, run_id: int, run: Run) -> None:
        self._journal.end_run(run_id, run)
        self._read(number)

    def lose_run(self, number: int, seed: int, why: str) -> None:
        """Make a finished run void, whose weights are gone before it was scored and audited: it is made again."""
        self._journal.lose_run(number, seed, why)
        self._read(number)

    def record_score(self, number: int, seed: int, found: Score, split: Split) -> None:
        record = self._journal.record_score if split == "validation" else self._journal.record_holdout
        record(number, seed, found)
        self._read(number)

    def record_audit(self, number: int, seed: int, found: Audit, split: Split) -> None:
        if split == "validation":
            self._journal.record_audit(number, seed, found)
        else:
            held = [run.holdout for run in self.attempts[number].runs if run.seed == seed]
            for score in filter(None, held):
                self._journal.record_holdout(number, seed, replace(score, audit=found))
        self._read(number)

    def decide(self, number: int, decision: Decision) -> None:
        """Record a first or later decision; the attempt has to be settled afterwards."""
        self._journal.record_decision(number, decision)
        self._read(number)

    def settle(self, number: int) -> None:
        self._journal.settle(number)
        self._read(number)

    def make_void(self, numbers: Iterable[int], why: str) -> None:
        """Withdraw the decisions on attempts that failed while the machine was broken."""
        self._journal.make_void(numbers, why)
        self._read_all()  # the longest run may have been one of theirs

    def put_dawn(self, dawn: Dawn) -> None:
        """Record that a dawn begins, goes on or ends."""
        self._journal.put_dawn(dawn)
        self.dawns = self._journal.dawns()

    def record_ask(self, ask: Ask) -> None:
        self._journal.record_ask(ask)
        self._note_asks([ask])

    def read_asks(self) -> None:
        """Read from the journal what a source has recorded there itself."""
        self._note_asks(self._journal.asks()[len(self.asks) :])

    def _note_asks(self, asks: Sequence[Ask]) -> None:
        self.asks += tuple(asks)
        for ask in asks:
            self._asked_s[ask.attempt] += ask.wall_s
            self._longest_asking_s = max(self._longest_asking_s, self._asked_s[ask.attempt])

    def _read(self, number: int, *, is_news: bool = True) -> None:
        """Replace an attempt by what the journal holds of it; is_news: what was found before may not hold any more."""
        if is_news:
            self._found.clear()
        self._discount(self.attempts[number])
        attempt = self._journal.attempt(number)
        self.attempts = (*self.attempts[:number], attempt, *self.attempts[number + 1 :])
        self._count(attempt)

    def _discount(self, attempt: Attempt) -> None:
        """Take an attempt out of the sums; the longest times stay."""
        self.ideas -= attempt.is_idea
        self.runs_at_dawns -= len(attempt.dawn_runs())
        self.merges.pop(attempt.number, None)
        for numbers in (self.unsettled, self.kept, self.overtaken, self.loose, self.at_dawn):
            numbers.discard(attempt.number)

    def _count(self, attempt: Attempt) -> None:
        number, at_dawn = attempt.number, len(attempt.dawn_runs())
        self.ideas += attempt.is_idea
        self.runs_at_dawns += at_dawn
        for numbers, is_one in (
            (self.unsettled, not attempt.settled),
            (self.kept, attempt.status is Status.KEEP),
            (self.overtaken, attempt.kind is Kind.OVERTAKEN),
            (self.loose, unscored(attempt) or (attempt.status is Status.KEEP and unaudited(attempt))),
            (self.at_dawn, at_dawn),
        ):
            if is_one:
                numbers.add(number)
        if attempt.proposal.merges is not None and attempt.kind is not Kind.ORPHANED:
            self.merges[number] = attempt.proposal.merges
        runs_s = [run.spent_s for run in attempt.counted_runs]
        if runs_s:
            self._longest_run_s = max(self._longest_run_s or 0.0, *runs_s)
        if attempt.dry_run is not None:
            self._longest_dry_run_s = max(self._longest_dry_run_s, attempt.dry_run.wall_s)


def unscored(attempt: Attempt, *, in_flight: Collection[int] = ()) -> Run | None:
    """Return the night's first run of the attempt that has to be scored still; in_flight: seeds that are taken."""
    due = (run for run in attempt.done_runs if run.ending is Ending.FINISHED and run.score is None)
    return next((run for run in due if run.seed not in in_flight), None)


def unaudited(attempt: Attempt) -> Run | None:
    """Return the first run to be audited still: any of an edit's, since one alone may cheat; attempt 0's first."""
    runs = attempt.done_runs if attempt.number else attempt.done_runs[:1]
    return next((run for run in runs if run.score and run.score.val_bpb is not None and run.score.audit is None), None)
