"""Say what workers are, what each may use of its machine, and what it does now."""

from dataclasses import dataclass
from enum import StrEnum

from agent.clock import hours_since

LOCAL = "local"  # the one worker of a night that has no others


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """What one worker may use of its machine; no other worker of the night uses it at the same time."""

    worker: str = LOCAL  # shown to people and in the journal: "gpu 1", "cores 2-3", "10.0.0.7 gpu 0"
    cores: tuple[int, ...] = ()  # empty: its processes may run on any core
    gpu: str | None = None  # the value of CUDA_VISIBLE_DEVICES; None: as the environment has it
    share: float = 1.0  # share of the machine's memory that its processes may fill
    of_cores: int | None = None  # cores of the machine where only some are its device, as in "2 of 32 cores"; else None


WHOLE = DeviceSlot()  # the whole machine: the night has one worker


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest point of a running training's curve, or the news that its weights are scored."""

    fraction: float  # share of the budget, 0 to 1
    step: float | None = None
    loss: float | None = None
    tokens_s: float | None = None
    is_scoring: bool = False


class Doing(StrEnum):
    """Name what a worker can be busy with."""

    DRY_RUN = "dry run"
    TRAINING = "training"
    SCORING = "scoring"
    AUDITING = "auditing"


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker does now: recorded before it begins, and removed once its result is recorded."""

    worker: str
    doing: Doing
    attempt: int
    began: str  # ISO 8601, UTC, to milliseconds
    seed: int | None = None  # None: a dry run
    confirmation: int = 0  # 0: for the night

    def __post_init__(self) -> None:
        hours_since(self.began)  # refuses a text that is no time, as a foreign journal may hold
