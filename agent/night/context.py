"""The parts that a night works with, put together by opening.py."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.experiment import Attempt, Judge, Proposer, Watcher
from agent.judging.failures import PLAUSIBLE_GAIN
from agent.night.limits import Limits
from agent.night.lock import Stop
from agent.night.state import State
from agent.pools.pool import Pool
from agent.proposers.ahead import Outbox
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import Ledger
from agent.runs.runner import Runner


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
