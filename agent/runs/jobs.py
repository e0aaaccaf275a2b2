"""Describe the jobs of workers. A job is data: it holds everything that a worker needs, here or on another machine."""

from dataclasses import dataclass

from agent.experiment import Audit, DryRun, Run, Split
from agent.judging.early_stop import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Train an attempt's script for a few steps and score some rows, before the minutes.

    A worker also tries attempt 0 like this, to find out whether the machine is to blame for a failure.
    """

    attempt: int
    script: str
    allowance_s: float  # s for start, compilation and saving, beyond the budget
    scoring_s: float  # s for the process that scores
    steps: int  # training steps
    machine: "Trial | None" = None  # a trial of attempt 0, made if this one fails; None: a failure is the script's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Train an attempt's script with one seed, to the end or to the first bound that is exceeded, and score it there.

    A confirmation run is scored on the holdout, too.
    """

    attempt: int
    script: str
    seed: int
    allowance_s: float
    machine: Trial | None = None  # see Trial.machine
    confirmation: int = 0  # 0: a run of the night; k: one of its k-th confirmation
    bounds: tuple[Bound, ...] = ()
    may_be_repeated: bool = True  # see Attempt.may_be_repeated()
    usual_steps_s: float | None = None  # speed of the script's other runs; None: not known
    usual_scoring_s: float | None = None  # time that scoring attempt 0 took; None: not known, or this is attempt 0
    most_weights_bytes: int | None = None  # larger weights are not scored; None: no limit
    wait_s: float = 0.0  # pause before it begins: other programs end meanwhile, or the machine cools down


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    """Audit the committed losses of a scored run, where its weights are."""

    attempt: int
    script: str
    seed: int
    limit_s: float  # s for each process
    machine: Trial | None = None  # see Trial.machine
    split: Split = "validation"
    reference: tuple[int, int] | None = None  # attempt and seed of the run whose losses gains are counted from


Job = Trial | Measure | AuditRun

Result = DryRun | Run | Audit
