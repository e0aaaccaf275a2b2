"""The workers of a cluster as the driver knows them."""

import re
import time
from dataclasses import dataclass

from agent.experiment import Progress
from agent.pools.cluster.messages import NodeJoined, NodeShare
from agent.pools.pool import Working
from agent.runs.jobs import Job


@dataclass(slots=True)
class Slot:
    """Hold one worker: a share of a node."""

    name: str
    node: NodeJoined
    share: NodeShare
    rests_until: float = 0.0
    job: Job | None = None
    number: int = 0  # of the job
    began: float = 0.0
    progress: Progress | None = None

    def begin(self, job: Job, number: int) -> None:
        self.job, self.number, self.began, self.progress = job, number, time.monotonic(), None

    def note(self, progress: Progress | None, elapsed_s: float) -> None:
        """Note how far the worker is; elapsed_s: of the process that runs now."""
        self.progress, self.began = progress, time.monotonic() - elapsed_s

    @property
    def working_now(self) -> Working:
        return Working(self.progress, time.monotonic() - self.began)

    @property
    def is_free(self) -> bool:
        return self.job is None and self.rests_until < time.monotonic()


def shares_of_node(node: NodeJoined, cpus: int, gpus: int) -> dict[str, NodeShare]:
    """Return the name of each worker of a node → its share of it, where each takes so many cores and GPUs."""
    count, kind = (node.gpus, "gpu") if gpus else (node.cpus // cpus, "share")
    names = [f"{node.name} {kind} {place}" for place in range(count)] if count > 1 or gpus else [node.name] * count
    return {name: NodeShare(cpus, 1 / count) for name in names}


def node_of(worker: str) -> str:
    """Return the name of the node of a worker, given that of the worker."""
    return re.sub(r" (gpu|share) \d+$", "", worker)
