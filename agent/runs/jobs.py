"""Say what a worker can be asked to do. A job is data: it holds all that he has to know, here or on another machine."""

from dataclasses import dataclass

from agent.experiment import Audit, DryRun, Run, Split
from agent.judging.early_stop import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Train an attempt's script for a few steps and score some rows, before the minutes.

    That of attempt 0 is also how a worker finds out whether the machine is to blame for a failure.
    """

    attempt: int
    script: str
    allowance_s: float  # beyond the budget
    scoring_s: float  # that the process which scores may take
    steps: int  # of training
    machine: "Trial | None" = None  # of attempt 0, made where this fails; None: a failure is the script's


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Train an attempt's script with one seed, to the end or to the first bound that is exceeded, and score it there.

    A run at dawn is scored on the holdout, too.
    """

    attempt: int
    script: str
    seed: int
    allowance_s: float
    machine: Trial | None = None  # as for a Trial
    dawn: int = 0  # 0: for the night; k: for its k-th dawn
    bounds: tuple[Bound, ...] = ()
    may_be_void: bool = True  # see Attempt.may_be_void()
    usual_steps_s: float | None = None  # of the script's other runs; None: nothing is known of its speed
    usual_scoring_s: float | None = None  # of attempt 0; None: not known, or this is attempt 0
    most_weights_bytes: int | None = None  # more are not scored; None: any are
    wait_s: float = 0.0  # before it begins, so that other programs end, or the machine cools down


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    """Audit the committed losses of a scored run, where its weights are."""

    attempt: int
    script: str
    seed: int
    limit_s: float  # of each process
    machine: Trial | None = None  # as for a Trial
    split: Split = "validation"
    reference: tuple[int, int] | None = None  # attempt and seed of the run whose losses gains are counted from


Job = Trial | Measure | AuditRun

Result = DryRun | Run | Audit
