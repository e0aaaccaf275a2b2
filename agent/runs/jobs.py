"""The work of a night as data: each job holds all that a worker has to know, and nothing of journal, git or screen."""

from dataclasses import dataclass

from agent.experiment import Split
from agent.judging.early_stop import Bound


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
    machine: Trial | None  # of attempt 0; None: the attempt is attempt 0

    @property
    def attempt(self) -> int:
        return self.trial.attempt


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
    has_run_well: bool = False  # a run of the attempt was scored: a failure may be the machine's
    may_be_void: bool = True  # see Attempt.may_be_void()
    usual_steps_s: float | None = None  # of the script's other runs; None: nothing is known of its speed
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
    has_run_well: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(OfWeights):
    """Score the weights of a finished run."""

    refusal: str | None = None  # why the weights are not scored; None: they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Reexamine(OfWeights):
    """Audit the committed losses of a scored run."""

    reference: tuple[int, int] | None = None  # attempt and seed of the run whose losses gains are counted from


Job = Rehearse | Measure | Evaluate | Reexamine
