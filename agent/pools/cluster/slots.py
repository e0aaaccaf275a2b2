"""The workers of a cluster as the driver knows them."""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.errors import MachineError
from agent.experiment import Audit, DryRun, Ending, Progress, Run
from agent.invocation import typed
from agent.pools.cluster.messages import Content, NodeJoined, NodeShare
from agent.pools.pool import Ended, Working
from agent.runs.execute import Result
from agent.runs.jobs import Job, Measure, Trial
from agent.runs.runner import Runner

FAILURES_IN_A_ROW = 3  # of a node: it can be expected to do no job
UNWELL_REST_S, LONGEST_REST_S = 60.0, 900.0


@dataclass(slots=True)
class Slot:
    """Hold one worker: a share of a node."""

    name: str
    node: NodeJoined
    share: NodeShare
    rests_until: float = 0.0
    job: Job | None = None
    killed: str | None = None  # why the job's process was, while attempt 0 is tried in its place
    number: int = 0  # of the job
    began: float = 0.0
    progress: Progress | None = None

    def begin(self, job: Job, number: int) -> None:
        self.job, self.killed, self.number = job, None, number
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

    def is_well(self, node: str) -> bool:
        return node not in self._count

    def rest_s(self, node: str) -> float:
        """Return how long a node gets no work after its last failure: twice as long after each further one."""
        rest_s: float = UNWELL_REST_S * 2 ** (self._count.get(node, 1) - 1)
        return min(rest_s, LONGEST_REST_S)


class Kills:
    """Count jobs whose process was killed on a node where attempt 0 ran well right afterwards.

    Such a job is done again once; the second time counts as the script's. Runs are counted by the journal; a dry run or
    a scoring, which a night on one machine repeats without a record, is counted here.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._nodes: dict[int, dict[str, str]] = defaultdict(dict)  # attempt → id and name of each node
        self._killed: set[tuple[type[Job], int, int]] = set()  # by kind of job, attempt and seed

    def untried(self, attempt: int, nodes: Collection[str]) -> set[str]:
        """Return those of the nodes where no job of the attempt was killed; none for one that was killed nowhere."""
        return set(nodes) - set(self._nodes.get(attempt, nodes))

    def note(self, slot: Slot, job: Job, why: str) -> Ended | None:
        """Note that a job was killed; return how it ends, None if it is to be done again without a record."""
        self._nodes[job.attempt][slot.node.id] = slot.node.name
        names = " and ".join(self._nodes[job.attempt].values())
        why = f"{why} on {names}, where a trial run of attempt 0 succeeds"
        if isinstance(job, Measure):
            if job.may_be_void:
                return Ended(slot.name, job, Run(job.seed, Ending.SPOILT, None, 0.0, None, why))
        elif (key := (type(job), job.attempt, 0 if isinstance(job, Trial) else job.seed)) not in self._killed:
            self._killed.add(key)
            return None
        if job.attempt:
            return Ended(slot.name, job, _blamed(job, why))
        again = typed("run", "--tag", self._runner.night.tag)
        return Ended(slot.name, job, error=MachineError(f"{why}; repair that and go on with: {again}"))


def _blamed(job: Job, why: str) -> Result:
    """Return the result of a job that was killed again where attempt 0 runs."""
    match job:
        case Measure():
            return Run(job.seed, Ending.EXCEEDED, None, 0.0, None, why)
        case Trial():
            return DryRun(0.0, why)
    return Audit(0, 0, 0.0, 0.0, 0.0, f"it could not be done: {why}")


def needs_on(node: NodeJoined, content: Content) -> tuple[int, int]:
    """Return the cores and GPUs of one worker of a node."""
    gpus = 1 if node.device is not None and node.device.device_kind == "cuda" else 0
    return content.cores_of(node.cpus, node.gpus * gpus), gpus


def shares_of_node(node: NodeJoined, cpus: int, gpus: int) -> dict[str, NodeShare]:
    """Return the name of each worker of a node → its share of it, where each takes so many cores and GPUs."""
    count, kind = (node.gpus, "gpu") if gpus else (node.cpus // cpus, "share")
    names = [f"{node.name} {kind} {place}" for place in range(count)] if count > 1 or gpus else [node.name] * count
    return {name: NodeShare(cpus, 1 / count) for name in names}


def node_of(worker: str) -> str:
    """Return the name of the node of a worker, given that of the worker."""
    return re.sub(r" (gpu|share) \d+$", "", worker)
