"""The workers of a cluster as the driver knows them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from agent.experiment import Progress
from agent.pools.cluster.messages import Content, NodeJoined, NodeShare
from agent.pools.pool import Working
from agent.runs.jobs import Job

FAILURES_IN_A_ROW = 3  # of a node: it can be expected to do no job


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
        self.job, self.number = job, number
        self.began, self.progress = time.monotonic(), None

    def note(self, progress: Progress | None, elapsed_s: float) -> None:
        """Note how far the worker is; elapsed_s: of the process that runs now."""
        self.progress, self.began = progress, time.monotonic() - elapsed_s

    @property
    def working_now(self) -> Working:
        return Working(self.progress, time.monotonic() - self.began)

    @property
    def is_free(self) -> bool:
        return self.job is None and self.rests_until < time.monotonic()


class Failures:
    """Count how often each node has failed in a row; a job that it has done well ends the row."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}  # by Ray's identifier of the node
        self._last_s: dict[str, float] = {}  # by the same: when it failed last

    def note(self, slot: Slot, workers: Iterable[Slot]) -> bool:
        """Note that the job of a worker has failed; return whether no node of all workers can be expected to do one.

        Of jobs that went on at the same time on a node, the first to fail counts.
        """
        node = slot.node.id
        if slot.began >= self._last_s.get(node, 0.0):
            self._count[node] = self._count.get(node, 0) + 1
        self._last_s[node] = time.monotonic()
        return all(self._count.get(one.node.id, 0) >= FAILURES_IN_A_ROW for one in workers)

    def forget(self, node: str) -> None:
        self._count.pop(node, None)


def needs_on(node: NodeJoined, content: Content) -> tuple[int, int]:
    """Return the cores and GPUs of one worker of a node."""
    gpus = 1 if node.device is not None and node.device.device_kind == "cuda" else 0
    return content.cores_of(node.cpus, node.gpus * gpus), gpus


def shares_of_node(node: NodeJoined, cpus: int, gpus: int) -> dict[str, NodeShare]:
    """Return the name of each worker of a node → its share of it, where each takes so many cores and GPUs."""
    count, kind = (node.gpus, "gpu") if gpus else (node.cpus // cpus, "share")
    names = [f"{node.name} {kind} {place}" for place in range(count)] if count > 1 or gpus else [node.name] * count
    return {name: NodeShare(cpus, 1 / count) for name in names}
