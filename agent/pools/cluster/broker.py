"""Speak with Ray in a process beside the driver.

Ray's library ends its process when the head of the cluster is gone, and takes over signals. Here it can do both: the
driver sees that this process has ended, and starts another. It ends when the driver does.

    python -m agent.pools.cluster.broker SOCKET
"""

import os
import pickle
import socket
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agent.errors import MachineError, NightshiftError
from agent.lab.hardware import usable_cores
from agent.pools.cluster import bootstrap
from agent.pools.cluster.content import code_of_harness, pieces, store
from agent.pools.cluster.messages import (
    BeginJob,
    Connect,
    Connected,
    Consult,
    Consulted,
    Content,
    Done,
    EndJob,
    FromBroker,
    Join,
    NodeCall,
    NodeJoined,
    NodeLeft,
    NodeShare,
    Progressed,
    Unreachable,
    Versions,
)
from agent.pools.cluster.node import lacks, look, perform

WATCH_S = 1.0  # between looks at the nodes and at the progress of jobs
END_S = 6.0  # that a job has to end in once it was asked to; then its process is killed
LEAVE_S = 6.0  # that Ray may take to notice that a node is gone, once its processes are
CALLS_OF_A_PROCESS = 200  # starting another Python for every job would take a second of a core each time
STORE_BYTES = 256 << 20  # of Ray's object store on this machine: results are small, and content goes in pieces


@dataclass
class Broker:
    """Hold what goes on in the cluster."""

    link: Connection
    code: tuple[str, Any]  # the checksum of the harness's code, and the reference to it
    board: Any  # the actor bootstrap.Board
    task: Any  # made once: Ray keeps a copy of the function for each that is made
    sender: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    content: Content | None = None
    nodes: set[str] = field(default_factory=set)
    jobs: dict[str, Any] = field(default_factory=dict)  # by worker: the reference to its result
    ending: dict[str, float] = field(default_factory=dict)  # by worker: when its job was asked to end
    sending: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, event: FromBroker) -> None:
        with self.sending, suppress(OSError):  # the driver may be gone
            self.link.send(event)

    def call(self, node_id: str, call: NodeCall, worker: str = "", cpus: int = 0, gpus: int = 0) -> Any:
        """Return the reference to a node's answer."""
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = self.task.options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=there)
        digest, code = self.code
        return task.remote(digest, [code], pickle.dumps(call), self.board, worker)

    def ask(self, node_id: str, call: NodeCall, gpus: int = 0) -> Any:
        """Return a node's answer once it is there."""
        return read(ray.get(self.call(node_id, call, gpus=gpus)))

    # ---- nodes ----

    def watch(self) -> None:
        """Follow nodes and progress until the process ends."""
        while True:
            with suppress(RayError, MachineError):
                self._look_around()
                self._exchange()
            time.sleep(WATCH_S)

    def _look_around(self) -> None:
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for node_id in self.nodes - alive.keys():
            self.nodes.discard(node_id)
            self.tell(NodeLeft(node_id))
        for node_id, facts in alive.items():
            if self.content is not None and node_id not in self.nodes:
                self.nodes.add(node_id)
                threading.Thread(target=self._join, args=(facts, self.content), daemon=True).start()

    def _join(self, facts: dict[str, Any], content: Content) -> None:
        """Bring the content to a node, and tell the driver what device it has."""
        joined = as_listed(facts)
        try:
            if joined.cpus:  # without any, it is for drivers alone
                places = {Path(content.fixed_at): content.fixed, Path(content.corpus_at): content.corpus}
                files = {digest: str(place / name) for place, names in places.items() for name, digest in names.items()}
                joined = replace(joined, versions=self.bring(joined.id, files))
                share = NodeShare(content.cores_of(joined.cpus, joined.gpus))
                joined = replace(
                    joined, device=self.ask(joined.id, partial(look, content, share), gpus=min(joined.gpus, 1))
                )
        except (RayError, OSError, ImportError, NightshiftError) as error:
            joined = replace(joined, why=sentence(error))
        self.tell(joined)

    def bring(self, node_id: str, files: Mapping[str, str]) -> Versions:
        """Send those of the files that a node lacks (sha256 → their path here)."""
        versions: Versions
        versions, digests = self.ask(node_id, partial(lacks, files))
        for digest in digests:
            for offset, piece, last in pieces(Path(files[digest])):
                self.ask(node_id, partial(store, digest, self.sender, offset, piece, last=last))
        return versions

    # ---- jobs ----

    def begin(self, order: BeginJob) -> None:
        """Execute a job to its end, and tell the driver."""
        worker, job = order.perform.worker, None
        try:
            if order.files:
                self.bring(order.node_id, order.files)
            self.jobs[worker] = job = self.call(
                order.node_id, partial(perform, order.perform), worker, order.cpus, order.gpus
            )
            done = Done(worker, order.number, read(ray.get(job)))
        except (RayError, OSError, NightshiftError) as error:
            is_alone = job is not None and worker not in self.ending and self._was_killed(order.node_id, error)
            done = Done(worker, order.number, lost=sentence(error), was_killed=is_alone)
        if self.jobs.get(worker) is job:  # of a node that came back, the worker may have another one by now
            self.jobs.pop(worker, None)
            self.ending.pop(worker, None)
        self.tell(done)

    def _was_killed(self, node_id: str, error: Exception) -> bool:
        """Return whether a process alone was killed; a node that goes takes its processes first."""
        if isinstance(error, WorkerCrashedError | OutOfMemoryError):
            time.sleep(LEAVE_S)
            with suppress(RayError):
                return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())
        return False

    def end(self, worker: str) -> None:
        """Ask a job to end; the next exchange passes that on."""
        self.ending.setdefault(worker, time.monotonic())

    def _exchange(self) -> None:
        """Pass progress on, and the wish to end jobs; end the processes of those that do not."""
        ending = dict(self.ending)
        for worker, asked in ending.items():
            if worker in self.jobs and time.monotonic() - asked > END_S:
                ray.cancel(self.jobs[worker], force=True)
        if self.jobs:
            for worker, point in ray.get(self.board.exchange.remote(set(ending)), timeout=10).items():
                self.tell(Progressed(worker, *read(point)))

    def consult(self, order: Consult) -> None:
        """Make a short call to a node, and tell the driver its answer."""
        try:
            self.tell(Consulted(order.number, self.ask(order.node_id, order.call)))
        except (RayError, OSError, NightshiftError) as error:
            self.tell(Consulted(order.number, why=sentence(error)))


def read(answer: bytes) -> Any:
    """Unpickle a node's answer; raise MachineError where it cannot be."""
    try:
        return pickle.loads(answer)
    except Exception as error:  # as many kinds as there are ways for it to be damaged
        raise MachineError(f"its answer cannot be read ({type(error).__name__}: {error})") from error


def as_listed(facts: Mapping[str, Any]) -> NodeJoined:
    """Return a node as Ray lists it."""
    has = facts["Resources"]
    return NodeJoined(facts["NodeID"], facts["NodeName"], int(has.get("CPU", 0)), int(has.get("GPU", 0)))


def sentence(error: Exception) -> str:
    """Return an error in one line, without the traces of Ray."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    known = {
        WorkerCrashedError: "its process was killed",
        OutOfMemoryError: "its process was killed for want of memory",
        NodeDiedError: "its node has left",
        TaskUnschedulableError: "its node has left",
        LocalRayletDiedError: "its node has left",
        TaskCancelledError: "it was ended",
        ModuleNotFoundError: f"its Python lacks {getattr(cause, 'name', None)}: install nightshift's packages there",
    }
    said = next((words for kind, words in known.items() if isinstance(cause, kind)), None)
    return said or next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__


def connect(order: Connect) -> None:
    """Join the cluster, or begin one on this machine that ends with this process."""
    own: dict[str, Any] = {
        "_temp_dir": order.temporary,
        "_node_name": "ray",
        "num_cpus": usable_cores(),
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
    }
    ray.init(
        address=order.address or "local", log_to_driver=False, configure_logging=False, namespace="nightshift",
        **({} if order.address else own),
    )  # fmt: skip


def main(link: Connection) -> None:
    """Connect as the driver's first order says, then follow its orders until it is gone."""
    try:
        connect(link.recv())
        digest, code = code_of_harness()
        board = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=_here())(bootstrap.Board).remote()
        task = ray.remote(max_retries=0, max_calls=CALLS_OF_A_PROCESS)(bootstrap.answer_with)
        broker = Broker(link, (digest, ray.put(code)), board, task)
    except (RayError, ConnectionError, OSError, RuntimeError, ValueError) as error:
        link.send(Unreachable(sentence(error)))
        return
    broker.tell(Connected(tuple(as_listed(node) for node in ray.nodes() if node["Alive"])))
    threading.Thread(target=broker.watch, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            match link.recv():
                case Join(content):
                    broker.content = content
                case BeginJob() as order:
                    threading.Thread(target=broker.begin, args=(order,), daemon=True).start()
                case EndJob(worker):
                    broker.end(worker)
                case Consult() as order:
                    threading.Thread(target=broker.consult, args=(order,), daemon=True).start()
    ray.shutdown()


def _here() -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(bootstrap)
    door = socket.socket(socket.AF_UNIX)
    door.connect(sys.argv[1])
    main(Connection(door.detach()))
    os._exit(0)  # threads may wait for answers that will not come
