"""The work of a night as data: each job holds all that a worker has to know, and nothing of journal, git or screen."""

from dataclasses import dataclass

from agent.drift.speeds import Usual
from agent.experiment import Attempt, Ending
from agent.judging.early_stop import Bound
from agent.runs.score import Split

SPOILT = frozenset({Ending.DELAYED, Ending.STARVED, Ending.DISRUPTED})  # what a script could have caused itself
MOST_SPOILT, RUNS_A_CHANCE = 2, 4  # void runs of an attempt for that, and one more for so many that counted


def has_chances(attempt: Attempt) -> bool:
    """Return whether one more of an attempt's runs may be void for what a script can cause itself.

    A script that had further tries with every seed would show the best of a few each time. Attempt 0 is not suspected.
    """
    spoilt = sum(run.ending in SPOILT for run in attempt.runs)
    return attempt.number == 0 or spoilt < MOST_SPOILT + len(attempt.counted_runs) // RUNS_A_CHANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Train an attempt's script for seconds and score some rows, before the minutes.

    That of attempt 0 is also how a worker finds out whether the machine is to blame for a failure.
    """

    attempt: int
    script: str
    allowance_s: float  # beyond the budget
    scoring_s: float  # that each process which scores may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """Make an attempt's trial run."""

    trial: Trial
    machine: Trial | None  # made where there was no room; None: the attempt is attempt 0

    @property
    def attempt(self) -> int:
        return self.trial.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Train attempt 0 for a moment, to see whether this machine is slow now."""

    trial: Trial
    budget_s: float
    steps_s: float  # that its runs made in so much time from their start


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Train an attempt's script with one seed, to the end or to the first bound that is exceeded."""

    attempt: int
    script: str
    seed: int
    allowance_s: float
    machine: Trial
    dawn: int = 0  # 0: for the night; k: for its k-th dawn
    bounds: tuple[Bound, ...] = ()
    before: tuple[Ending, ...] = ()  # how earlier runs with this seed ended
    has_run_well: bool = False  # a run of the attempt was scored
    was_in_time: bool = False  # and none was done again for its time
    has_chances: bool = True  # see has_chances()
    usual: Usual | None = None  # what is known of its speed; None: nothing
    reference: Reference | None = None  # None: none is cheap enough
    alone: bool = False  # while no other job goes on
    wait_s: float = 0.0  # before it begins, so that other programs end, or the machine cools down


@dataclass(frozen=True, slots=True, kw_only=True)
class OfWeights:
    """Look at the weights that a finished run has saved, where they are."""

    attempt: int
    script: str
    seed: int
    limit_s: float  # of each process that looks at them
    machine: Trial
    split: Split = "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(OfWeights):
    """Score the weights of a finished run."""

    refusal: str | None = None  # why the weights are not scored; None: they are
    has_run_well: bool = False  # a failure may be the machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class Reexamine(OfWeights):
    """Audit the committed losses of a scored run."""

    reference: tuple[int, int] | None = None  # attempt and seed of the run whose losses gains are counted from


Job = Rehearse | Measure | Evaluate | Reexamine
