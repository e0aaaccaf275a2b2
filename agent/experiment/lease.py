"""Name a worker, and the part of a machine that it alone uses."""

from dataclasses import dataclass

LOCAL = "local"  # the one worker of a night that has no others


@dataclass(frozen=True, slots=True)
class Lease:
    """Hold what one worker may use of its machine; no other worker of the night uses it at the same time."""

    worker: str = LOCAL  # as people and the journal name it: "gpu 1", "cores 2-3", "10.0.0.7 gpu 0"
    cores: tuple[int, ...] = ()  # that its processes are pinned to; empty: they are not pinned
    gpu: str | None = None  # the value of CUDA_VISIBLE_DEVICES; None: as the environment has it
    share: float = 1.0  # of the machine's memory that it may fill
    of_cores: int | None = None  # cores of the machine where only some are its device, as in "2 of 32 cores"; else None


WHOLE = Lease()  # of a night with one worker: the machine as it is
