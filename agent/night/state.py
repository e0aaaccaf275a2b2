"""The parts that a night works with, and what it knows: read from its journal once, and changed together with it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from agent.clock import boot_id, utc_now
from agent.experiment import (
    LOCAL,
    Ask,
    Attempt,
    Audit,
    Dawn,
    Decision,
    DryRun,
    History,
    Judge,
    Noise,
    Progress,
    Proposal,
    Run,
    Split,
    Status,
    Work,
    incumbent,
)
from agent.judging.failures import PLAUSIBLE_GAIN
from agent.judging.noise import noise
from agent.night.limits import Limits, Pace
from agent.night.lock import Stop
from agent.pools.pool import Pool
from agent.proposers.ahead import Outbox
from agent.proposers.briefing import Left, Proposer
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import Ledger
from agent.runs.runner import Runner

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
        self.attempts: tuple[Attempt, ...] = journal.attempts()
        self.asks: tuple[Ask, ...] = journal.asks()
        self.dawns: tuple[Dawn, ...] = journal.dawns()

    # ---- questions ---------------------------------------------------------------------------------------------------

    @property
    def first(self) -> Attempt:
        """Return attempt 0; raise IndexError before there is one."""
        return self.attempts[0]

    @property
    def best(self) -> Attempt | None:
        """Return the incumbent."""
        return incumbent(self.attempts)

    @property
    def ideas(self) -> int:
        """Return how many attempts are no questions of dawn, attempt 0 included."""
        return sum(attempt.is_idea for attempt in self.attempts)

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
    def last_dawn(self) -> Dawn | None:
        return self.dawns[-1] if self.dawns else None

    @property
    def pace(self) -> Pace:
        """Return how long the next run, call and dry run will take."""
        pace = self.once("pace", lambda: Pace.of(self.attempts, self.asks, self._budget_s, self._patience_s))
        return replace(pace, workers=self.workers)

    @property
    def noise(self) -> Noise | None:
        """Return how far scores vary with the seed; recorded as well, for those who read the journal."""
        return self.once("noise", self._learn_noise)

    def _learn_noise(self) -> Noise | None:
        learnt = noise(self.attempts)
        self._journal.record_noise(learnt)
        return learnt

    def once(self, question: str, find: Callable[[], Found]) -> Found:
        """Return the answer of find(), which is kept until a run, a score, a decision or a call is recorded."""
        if question not in self._found:
            self._found[question] = find()
        answer: Found = self._found[question]
        return answer

    def check_in_place(self) -> None:
        """Raise NightError if the journal was removed or replaced."""
        self._journal.check_in_place()

    # ---- records -----------------------------------------------------------------------------------------------------

    def add(self, parent: int | None, proposal: Proposal) -> Attempt:
        number = len(self.attempts)
        self._journal.add_attempt(number, parent, proposal, utc_now())
        self.attempts = (*self.attempts, self._journal.attempt(number))
        return self.attempts[number]

    def record_commit(self, number: int, sha: str) -> None:
        self._journal.record_commit(number, sha)
        self._read(number, is_news=False)

    def record_dry_run(self, number: int, dry_run: DryRun) -> None:
        self._journal.record_dry_run(number, dry_run)
        self._read(number)

    def start_run(self, number: int, seed: int, dawn: int, worker: str = LOCAL) -> int:
        """Return the run's id."""
        run_id = self._journal.start_run(number, seed, boot_id(), dawn=dawn, worker=worker)
        self._read(number, is_news=False)
        return run_id

    def begin(self, work: Work) -> None:
        """Record what a worker begins to do."""
        self._journal.begin(work)

    def rest(self, worker: str) -> None:
        """Record that a worker does nothing now."""
        self._journal.rest(worker)

    def end_run(self, number: int, run_id: int, run: Run) -> None:
        self._journal.end_run(run_id, run)
        self._read(number)

    def lose_run(self, number: int, seed: int, why: str) -> None:
        """Make a finished run void, whose weights are gone before it was scored and audited: it is made again."""
        self._journal.lose_run(number, seed, why)
        self._read(number)

    def record_audit(self, number: int, seed: int, audit: Audit, split: Split) -> None:
        self._journal.record_audit(number, seed, audit, split)
        self._read(number)

    def decide(self, number: int, decision: Decision) -> None:
        """Record a first or later decision; the attempt has to be settled afterwards."""
        self._journal.record_decision(number, decision)
        self._read(number)

    def settle(self, number: int) -> None:
        self._journal.settle(number)
        self._read(number)

    def make_void(self, numbers: Collection[int], why: str) -> None:
        """Withdraw the decisions on attempts that failed while the machine was broken."""
        self._journal.make_void(numbers, why)
        for number in numbers:
            self._read(number)

    def put_dawn(self, dawn: Dawn) -> None:
        """Record that a dawn begins, goes on or ends."""
        self._journal.put_dawn(dawn)
        self.dawns = self._journal.dawns()

    def record_ask(self, ask: Ask) -> None:
        self._journal.record_ask(ask)
        self.read_asks()

    def read_asks(self) -> None:
        """Read from the journal what was recorded there, perhaps by a source itself."""
        self.asks = self._journal.asks()
        self._found.pop("pace", None)

    def _read(self, number: int, *, is_news: bool = True) -> None:
        """Replace an attempt by what the journal holds of it; is_news: what was found before may not hold any more."""
        if is_news:
            self._found.clear()
        self.attempts = (*self.attempts[:number], self._journal.attempt(number), *self.attempts[number + 1 :])


def unaudited(attempt: Attempt) -> Run | None:
    """Return the first run to be audited still: any of an edit's, since one alone may cheat; attempt 0's first."""
    runs = attempt.done_runs if attempt.number else attempt.done_runs[:1]
    return next((run for run in runs if run.score and run.score.val_bpb is not None and run.score.audit is None), None)


def lacks_audit(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the kept attempts of which a run of the night has to be audited still."""
    kept = (attempt for attempt in attempts if attempt.settled and attempt.status is Status.KEEP)
    return [attempt for attempt in kept if unaudited(attempt)]


# ---- the parts of a night --------------------------------------------------------------------------------------------


class Watcher(Protocol):
    """Receive the events of a night, to show them: a terminal, a plain log, a test."""

    def night_stands(self, history: History, asks: Sequence[Ask], left: Left) -> None: ...
    def dawn_began(self, runs: int) -> None: ...
    def asking_began(self, number: int) -> None: ...
    def attempt_began(self, attempt: Attempt) -> None: ...
    def work_began(self, attempt: Attempt, work: Work) -> None: ...
    def progressed(self, progress: Progress | None, elapsed_s: float, worker: str = ...) -> None: ...
    def worker_rests(self, worker: str) -> None: ...
    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None: ...
    def said(self, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class NightContext:
    """Hold everything that a night needs, so that a test can exchange any part of it."""

    place: Place
    journal: Journal
    ledger: Ledger
    runner: Runner
    proposer: Proposer
    judge: Judge
    watcher: Watcher
    stop: Stop
    limits: Limits
    plausible_gain: float = PLAUSIBLE_GAIN
    baseline: Callable[[Place], str] | None = None  # attempt 0's script; None: as it stands in the working tree
    early_stop: bool = False  # end runs whose curve says that they will be no better than the incumbent
    dry_runs: bool = False  # seconds of training before the minutes, for edits of more than dials
    patience_s: float = 0.0  # how long one call to a source of ideas may take; above zero, ideas are made ahead
    outbox: Outbox | None = None  # takes calls and sentences of the sources; None: they write to the journal themselves
    attempt_settled: Callable[[], None] = lambda: None  # told once the record of an attempt is complete
    measures_phases: bool = False  # find out once where the time of a step goes, since an author can read it
    has_reader: bool = False  # a source can read: tell it what surrounds the night
    pool: Pool | None = None  # of workers; None: of the runner alone

    def state(self) -> State:
        """Read from the journal what the night knows so far."""
        workers = 1 if self.pool is None else len(self.pool.workers)
        return State(self.journal, self.runner.night.budget_s, self.patience_s, workers)

    def tell_standing(self, state: State) -> None:
        """Show where the night stands now."""
        self.watcher.night_stands(state.attempts, state.asks, self.limits.left(state.ideas))


def why_and_where(context: NightContext, crashed: Attempt) -> str:
    """Return the reason of a crash, and the path of its log."""
    reason = crashed.decision.reason if crashed.decision else "no score"
    logs = [context.runner.log(crashed.number, run) for run in crashed.counted_runs]
    return f"{reason} (log: {logs[-1]})" if logs else reason
