"""Reach a Ray cluster through a broker, a process of its own, and learn which devices its nodes have."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from agent.amounts import counted
from agent.errors import MachineError, NightError
from agent.files import remove
from agent.invocation import command_for
from agent.pools.cluster.checks import most_each, unfit, usual
from agent.pools.cluster.content import digests_of
from agent.pools.cluster.node import versions
from agent.pools.cluster.words import (
    Connect,
    Connected,
    Content,
    FromBroker,
    Join,
    NodeDevice,
    NodeJoined,
    NodeLeft,
    ToBroker,
    Unreachable,
)
from agent.pools.leases import SHARED
from agent.records.terms import Terms
from agent.sandbox.environment import scrubbed_env

CONNECT_S, LOOK_S = 120.0, 600.0  # to reach a cluster; to bring the content to its nodes
END_S = 8.0  # that the broker and a cluster of ours have to end in
LOG_BYTES = 10 << 20  # of each of Ray's own logs
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it would send the working directory of `uv run` to every node
    "RAY_ROTATION_MAX_BYTES": str(LOG_BYTES),
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_memory_monitor_refresh_ms": "0",  # the harness watches memory itself, and knows whose fault a shortage is
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # then the head is gone
    "RAY_DEDUP_LOGS": "0",
}


class Cluster:
    """Hold the connection to a cluster; without an address, to one that runs on this machine as long as the night."""

    def __init__(self, address: str | None) -> None:
        if find_spec("ray") is None:
            raise NightError(f"--pool ray needs the package ray; install it with: {command_for('ray')}")
        if address is not None and "://" in address:
            raise NightError(f"--ray-address {address} is no HOST:PORT, such as 10.0.0.1:6379, of the cluster's head")
        self.address = address
        self.nodes: dict[str, NodeJoined] = {}  # that can take part in a night, by Ray's identifier
        self.refused: dict[str, str] = {}  # with the reason
        self.found: tuple[NodeJoined, ...] = ()  # all nodes that there were when it was connected
        self.awaited: set[str] = set()  # nodes whose device is not known yet
        self.content: Content | None = None
        # a socket's path has at most 107 characters, and Ray's own part of it takes 70
        self._folder = Path(tempfile.mkdtemp(prefix="nightshift-ray-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self.is_connected = False
        self.why_not: str | None = None

    # ---- the broker ----

    @property
    def is_started(self) -> bool:
        return self._link is not None

    def start(self) -> None:
        """Start a broker, which connects; return at once."""
        ours, theirs = Pipe()
        with theirs, (self._folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agent.pools.cluster.broker", str(theirs.fileno())],
                env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip
        self._link, self.why_not = ours, None
        self.send(Connect(self.address, str(self._folder / "ray")))

    def _environment(self) -> dict[str, str]:
        """Return the environment of the broker, and of a cluster on this machine: no keys, and settings of Ray."""
        own = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        local = {} if self.address else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
        path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
        known = scrubbed_env(os.environ.get("NIGHTSHIFT_DATA", ""))
        return known | own | SETTINGS | local | {"PYTHONPATH": path}

    def send(self, order: ToBroker) -> None:
        if self._link is not None:
            with suppress(OSError):  # events() says that it is gone
                self._link.send(order)

    def events(self, wait_s: float) -> list[FromBroker]:
        """Return what the broker has said; wait at most wait_s for the first. Raise EOFError if it has ended."""
        if self._link is None:
            time.sleep(wait_s)
            return []
        found: list[FromBroker] = []
        try:
            while self._link.poll(0 if found else wait_s):
                event = self._link.recv()
                self._note(event)
                found.append(event)
        except (EOFError, OSError):
            self.stop()
            raise EOFError from None
        return found

    def _note(self, event: FromBroker) -> None:
        match event:
            case Connected(nodes):
                self.is_connected = True
                self.found = nodes
                self.awaited = {node.node for node in nodes}
                if self.content is not None:
                    self.send(Join(self.content))
            case Unreachable(why):
                self.why_not = why
            case NodeJoined() as joined:
                self.awaited.discard(joined.node)
                unusable = unfit(joined, versions()) if joined.cpus else ""  # without cores: for drivers alone
                if unusable is None:
                    self.nodes[joined.node] = joined
                else:
                    self.refused[joined.node] = unusable
            case NodeLeft(node):
                self.awaited.discard(node)
                self.nodes.pop(node, None)
                self.refused.pop(node, None)

    def stop(self) -> None:
        """End the broker, and with it a cluster of ours; return after END_S at most."""
        self.is_connected = False
        self.nodes.clear()
        self.refused.clear()
        if self._link is not None:
            self._link.close()  # its sign to end
            self._link = None
        process, self._process = self._process, None
        if process is None:
            return
        tree = []
        with suppress(psutil.Error):
            tree = psutil.Process(process.pid).children(recursive=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()
        for one in tree:  # psutil compares the time of its start: not another process with its id
            with suppress(psutil.Error):
                one.kill()

    def close(self) -> None:
        self.stop()
        remove(self._folder)

    # ---- its devices ----

    def open(self) -> None:
        """Connect; raise MachineError where that is not possible."""
        self.start()
        self._wait_for(lambda: self.is_connected, CONNECT_S)

    def _wait_for(self, is_so: Any, most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while not is_so():
            try:
                self.events(0.2)
            except EOFError:
                raise MachineError(f"Ray ended while it started: {self._last_line()}") from None
            if self.why_not is not None:
                at = f"the Ray cluster at {self.address}" if self.address else "a Ray cluster on this machine"
                raise MachineError(f"{at} cannot be used: {self.why_not}")
            if time.monotonic() > deadline:
                raise MachineError(f"Ray gave no answer in {most_s:.0f} s; look at: ray status")

    def _last_line(self) -> str:
        log = (self._folder / "broker.log").read_text(errors="replace").strip().splitlines()
        return log[-1] if log else "it said nothing"

    def device(self, content: Content, wanted: str | None) -> NodeDevice:
        """Bring the content to all nodes, and return the device of a night; raise MachineError if no node is fit."""
        self.content = content
        self.send(Join(content))
        self._wait_for(lambda: not self.awaited, LOOK_S)
        found = usual([node.device for node in self.nodes.values() if node.device is not None], wanted)
        if found is None:
            why = "; ".join(sorted(filter(None, self.refused.values()))) or "none has cores for tasks"
            raise MachineError(f"no node of the Ray cluster can take part: {why}")
        return found

    def facts(
        self, terms: Terms, folder: Path, files: Sequence[str], here: Mapping[str, Any], wanted: str | None = None
    ) -> dict[str, Any]:
        """Return the facts of probe() with the device of the nodes, the wanted one if there is, for this machine's."""
        corpus = Path(here["data"])
        contents = (digests_of(folder, files), digests_of(corpus), str(folder), str(corpus))
        found = asdict(self.device(Content(*contents, terms.sandbox, terms.cores_each), wanted))
        return {**here, **{name: found[name] for name in ("device_kind", "device", "cores", "memory_bytes")}}

    def divided(self, terms: Terms) -> Terms:
        """Return the terms with the cores that each worker has; raise NightError for more workers than the cluster has.

        A night on GPUs, or with one worker, takes those that a node has for it.
        """
        nodes, wanted = [node for node in self.found if node.cpus], terms.workers
        gpus = sum(node.gpus for node in nodes)
        if gpus or not nodes:
            self._check_enough(wanted, gpus, "GPU")
            return terms
        each = terms.cores_each or (most_each(nodes, wanted) if wanted > 1 else None)
        if each is not None:
            self._check_enough(wanted, sum(node.cpus // each for node in nodes), f"worker with {counted(each, 'core')}")
        return replace(terms, cores_each=each)

    def _check_enough(self, wanted: int, there: int, what: str) -> None:
        if wanted > there and not self.address:  # to another cluster, nodes may come
            raise NightError(
                f"--workers {wanted}: this machine has room for {counted(there, what)}, and {SHARED}; choose --workers "
                f"{max(1, there)} or fewer"
            )
