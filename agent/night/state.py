"""The parts that a night works with, and its state: read from the journal once, and changed together with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from agent.clock import utc_now
from agent.experiment import Ask, Attempt, Night, Proposal, Run, Score, Split, best_of
from agent.findings import Confirmation
from agent.judging.judges import Judge
from agent.night.limits import Limits, Pace
from agent.night.lock import Stop
from agent.pools.pool import Pool
from agent.proposers.proposer import Messages, Proposer
from agent.records.journal import Journal
from agent.records.place import Place, read_script
from agent.runs.runner import Runner
from agent.work import Progress, Work

Answer = TypeVar("Answer")


class State:
    """The present state of a night, read from its journal. Whoever writes to the journal reads it back here.

    So a night resumed after a kill has exactly the state of the killed one. Only the driver's thread may use
    it.
    """

    def __init__(self, context: "NightContext") -> None:
        self.context = context
        self._journal = context.journal
        self._answers: dict[str, Any] = {}  # kept results of slow computations, until an attempt changes
        self.workers = max(1, len(context.pool.workers))
        self.attempts: tuple[Attempt, ...] = self._journal.attempts()
        self.asks: tuple[Ask, ...] = self._journal.asks()
        self.confirmations: tuple[Confirmation, ...] = self._journal.confirmations()

    @property
    def first(self) -> Attempt:
        """Return attempt 0; raise IndexError before there is one."""
        return self.attempts[0]

    @property
    def best(self) -> Attempt | None:
        """Return the best script."""
        return self.once("best", lambda: best_of(self.attempts))

    @property
    def proposals(self) -> int:
        """Return how many attempts were proposed: neither attempt 0 nor the confirmation's questions."""
        return sum(attempt.is_edit for attempt in self.attempts)

    @property
    def unsettled(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if not attempt.settled)

    def parent_of(self, attempt: Attempt) -> Attempt | None:
        """Return the attempt that this one was made from and is compared with; None for attempt 0."""
        return None if attempt.parent is None else self.attempts[attempt.parent]

    def others(self, number: int) -> tuple[Attempt, ...]:
        """Return all attempts except one, which is judged in the light of them. Attempts may end in any order."""
        return self.attempts[:number] + self.attempts[number + 1 :]

    @property
    def pace(self) -> Pace:
        """Return how long the next run, call and dry run will take."""
        context = self.context
        given = context.night.budget_s, context.patience_s, context.began, context.dry_runs
        pace = self.once("pace", lambda: Pace.of(self.attempts, self.asks, *given))
        return replace(pace, workers=self.workers)

    def once(self, question: str, find: Callable[[], Answer]) -> Answer:
        """Return the answer of find(), which is kept until an attempt changes."""
        if question not in self._answers:
            self._answers[question] = find()
        answer: Answer = self._answers[question]
        return answer

    def enter(self, parent: int | None, proposal: Proposal, idea: int | None = None) -> Attempt:
        """Enter a proposal into the journal as the next attempt; idea: its id, where a proposer had it."""
        number = len(self.attempts)
        self._journal.add_attempt(number, parent, proposal, utc_now(), idea)
        self.read(number)
        return self.attempts[number]

    def read(self, *numbers: int) -> None:
        """Read from the journal what has changed: these attempts, which may be new, asks and confirmations."""
        self._answers.clear()
        for number in numbers:
            changed = self._journal.attempt(number)
            self.attempts = (*self.attempts[:number], changed, *self.attempts[number + 1 :])
        self.asks, self.confirmations = self._journal.asks(), self._journal.confirmations()


def unaudited(attempt: Attempt, confirmation: int = 0) -> Iterator[tuple[Run, Split]]:
    """Yield the runs of the night, or of a confirmation, whose score on a text is to be audited still.

    All runs of an edit are, since one alone may cheat; of attempt 0, the first of the night.
    """
    runs = attempt.confirmation_runs(confirmation) if confirmation else attempt.done_runs
    if attempt.number == 0:
        runs = () if confirmation else runs[:1]
    for run in runs:
        scores: tuple[tuple[Split, Score | None], ...] = (("validation", run.score), ("holdout", run.holdout))
        for split, score in scores:
            if score is not None and score.val_bpb is not None and not score.is_reported and score.audit is None:
                yield run, split


# ---- the parts of a night --------------------------------------------------------------------------------------------


class Watcher(Protocol):
    """Watch a night whenever something has happened in it, and say sentences: a terminal, a plain log, a test."""

    def said(self, sentence: str) -> None: ...
    def work_began(self, attempt: Attempt, work: Work) -> None: ...
    def progressed(self, progress: Progress | None, worker: str = ...) -> None: ...
    def attempt_settled(self, attempt: Attempt) -> None: ...


@dataclass(frozen=True, slots=True)
class NightContext:
    """Everything that a night needs; a test can replace any part."""

    place: Place
    journal: Journal
    runner: Runner
    pool: Pool  # each of its workers has its own runner
    proposers: Sequence[Proposer]
    judge: Judge
    watcher: Watcher
    stop: Stop
    limits: Limits
    baseline: Callable[[Place, str | None], str] = read_script  # attempt 0's script
    dry_runs: bool = False  # a second of training before the minutes, for edits of more than dials
    patience_s: float = 0.0  # how long one call to a proposer may take
    messages: Messages = field(default_factory=Messages)  # messages of the proposers
    record_changed: Callable[[], None] = lambda: None  # called when results.tsv has changed
    began: str = field(default_factory=lambda: utc_now("milliseconds"))  # start of this command

    @property
    def night(self) -> Night:
        return self.runner.night

    def state(self) -> State:
        """Read from the journal what the night knows so far."""
        return State(self)
