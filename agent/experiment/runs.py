"""One training process: how it ended, what its script says of it, and what the harness measured."""

from dataclasses import dataclass, field
from enum import StrEnum

from agent.amounts import ABSURD
from agent.experiment.scripts import holds_text


class Ending(StrEnum):
    """Name how a training process ended."""

    FINISHED = "finished"
    CRASHED = "crashed"  # a non-zero exit code, or the promised files are not there
    OVERRAN = "overran"  # killed by the harness's clock
    EXCEEDED = "exceeded"  # killed at a limit of memory, disk or processes
    HOPELESS = "hopeless"  # ended early: its curve said that it would be no better than the incumbent
    SLEPT = "slept"  # the machine slept during it; redone
    STOPPED = "stopped"  # killed because the user asked; redone on resume
    LOST = "lost"  # the harness died during it; redone on resume
    FELLED = "felled"  # the machine went down during it, or its keeper was killed; redone once
    DELAYED = "delayed"  # it overran while other programs kept the machine busy; redone once
    STARVED = "starved"  # killed because other programs had used up the machine's memory or disk; redone
    DISRUPTED = "disrupted"  # the driver or the system ended it: a GPU's watchdog, a lost GPU; redone twice
    SLOWED = "slowed"  # the machine was slow during it: throttled, or busy; redone twice
    BROKEN = "broken"  # it failed while not even attempt 0 would run on this machine; redone on resume


DENIED = frozenset({Ending.STARVED, Ending.DISRUPTED})  # the machine did not let it run
VOID = frozenset({Ending.SLEPT, Ending.STOPPED, Ending.LOST, Ending.DELAYED, Ending.SLOWED, Ending.BROKEN}) | DENIED


@dataclass(frozen=True, slots=True)
class Summary:
    """Hold a script's own numbers about its run (summary.json); None for those that it does not report."""

    training_seconds: float | None = None
    total_seconds: float | None = None
    peak_vram_mb: float | None = None
    mfu_percent: float | None = None
    total_tokens_M: float | None = None  # noqa: N815, the names of summary.json
    num_steps: int | None = None
    num_params_M: float | None = None  # noqa: N815
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """Hold the sizes of the weights that a run saved, as the harness counted them."""

    params: int  # elements of all tensors
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Audit:
    """Committed losses against logits that a fresh process gave for the same prefixes, without the targets."""

    positions: int  # looked at
    wrong: int  # of them, further off than an honest model ever is
    worst_nats: float  # the largest difference
    mean_nats: float  # audited minus committed loss: above zero, the commitment flatters
    wall_s: float
    failure: str | None = None  # None: passed
    overran: bool = False  # a process was killed by the harness's clock

    @property
    def passed(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Score:
    """Hold the trusted scorer's answer: bits per byte, or why there are none."""

    val_bpb: float | None
    wall_s: float
    failure: str | None = None
    audit: Audit | None = None  # None: nothing was to be kept
    overran: bool = False  # the process was killed by the harness's clock


@holds_text("last_lines")
@dataclass(frozen=True, slots=True)
class Run:
    """Hold one training process: how it ended and, once scored, what its weights are worth."""

    seed: int
    ending: Ending
    exit_code: int | None  # -n after signal n; None when the harness ended it
    wall_s: float
    summary: Summary | None
    last_lines: str  # the end of its log
    score: Score | None = None
    dawn: int = 0  # 0: the night's own; k: made at the k-th dawn, to confirm, with a seed that no choice has seen
    holdout: Score | None = None  # of a run at dawn: bits per byte of text that no run of the night was judged by
    weights_bytes: int | None = None  # None: it left none that are its own
    weights: Weights | None = None  # None where it saved none that can be read
    peak_bytes: int | None = None  # the most memory that its processes filled, by the harness's own watch
    worker: str = field(default="local", compare=False)  # who executed it
    began: str | None = field(default=None, compare=False)  # ISO 8601, UTC; None where it was not recorded
    ended: str | None = field(default=None, compare=False)

    @property
    def tokens_s(self) -> float | None:
        """Return the script's count of tokens by the harness's seconds; None if the script gives no count."""
        tokens_M = self.summary.total_tokens_M if self.summary is not None else None
        if self.ending is not Ending.FINISHED or tokens_M is None or not 0 < tokens_M < ABSURD or self.wall_s <= 0:
            return None
        return 1e6 * tokens_M / self.wall_s

    @property
    def spent_s(self) -> float:
        """Return the seconds of training, scoring and audits, by the harness's clock."""
        scores = [score for score in (self.score, self.holdout) if score is not None]
        return self.wall_s + sum(score.wall_s + (score.audit.wall_s if score.audit else 0.0) for score in scores)


@dataclass(frozen=True, slots=True)
class DryRun:
    """A few seconds of training and scoring before the minutes: what breaks at the end of a run breaks here."""

    wall_s: float
    failure: str | None  # None: nothing broke
    overran: bool = False  # a process was killed by the harness's clock
