"""The workers of a cluster as the driver knows them."""

import re
import time
from dataclasses import dataclass

from agent.experiment import Progress
from agent.pools.cluster.messages import NodeJoined, NodeShare
from agent.pools.pool import Working
from agent.runs.jobs import Job

NOT_PINNED = 0.001  # cores that Ray counts for a worker that shares them


@dataclass(slots=True)
class Slot:
    """Hold one worker: a share of a node."""

    name: str
    node: NodeJoined
    share: NodeShare
    rests_until: float = 0.0
    job: Job | None = None
    began: float = 0.0
    progress: Progress | None = None

    def begin(self, job: Job) -> None:
        self.job, self.began, self.progress = job, time.monotonic(), None

    def note(self, progress: Progress | None, elapsed_s: float) -> None:
        """Note how far the worker is; elapsed_s: of the process that runs now."""
        self.progress, self.began = progress, time.monotonic() - elapsed_s

    @property
    def working_now(self) -> Working:
        return Working(self.progress, time.monotonic() - self.began)

    @property
    def is_free(self) -> bool:
        return self.job is None and self.rests_until < time.monotonic()


def names_of(node: NodeJoined, cpus: float, gpus: int, most: int) -> list[tuple[str, float]]:
    """Return the names of a node's workers, each with its part of the memory; Ray counts cpus and gpus for each."""
    count = node.gpus if gpus else most if cpus == NOT_PINNED else int(node.cpus // cpus)
    kind = "gpu" if gpus else "share"
    return [(f"{node.name} {kind} {place}" if count > 1 or gpus else node.name, 1 / count) for place in range(count)]


def node_of(worker: str) -> str:
    """Return the name of the node of a worker, given that of the worker."""
    return re.sub(r" (gpu|share) \d+$", "", worker)
