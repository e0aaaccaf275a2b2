"""Reach a Ray cluster through a broker, a process of its own, and learn which devices its nodes have."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent.errors import MachineError, NightError
from agent.experiment import Terms
from agent.invocation import command_for
from agent.pools.cluster.checks import most_each, unfit, usual
from agent.pools.cluster.content import digests_of
from agent.pools.cluster.link import Link
from agent.pools.cluster.messages import (
    Connect,
    Connected,
    Consult,
    Content,
    FromBroker,
    Join,
    NodeCall,
    NodeDevice,
    NodeJoined,
    NodeLeft,
    ToBroker,
    Unreachable,
)
from agent.pools.cluster.node import versions
from agent.pools.leases import SHARED
from agent.text import counted

ADDRESS = r"auto|([^:/\s]+|\[[0-9a-fA-F:]+\]):\d{1,5}"
CONNECT_S, LOOK_S = 120.0, 600.0  # to reach a cluster; to bring the content to its nodes


def in_words(why: str) -> str:
    """Return why a cluster was not reached, with the remedy where Ray's own words name none."""
    if "Failed to connect to GCS" in why:
        return "no head answers there; start one as docs/devices.md says, or correct the address"
    if why.startswith("Failed to connect to Ray cluster"):  # a head answers
        return (
            "its head answers, and does not let this machine in; start Ray here, too, with RAY_AUTH_MODE=token and the "
            "head's ~/.ray/auth_token, as docs/devices.md says"
        )
    return why


class Cluster:
    """Hold the connection to a cluster; without an address, to one that runs on this machine as long as the night."""

    def __init__(self, address: str | None) -> None:
        if find_spec("ray") is None:
            raise NightError(f"--pool ray needs the package ray; install it with: {command_for('ray')}")
        if address is not None and not re.fullmatch(ADDRESS, address):
            raise NightError(f"--ray-address {address} is no HOST:PORT, such as 10.0.0.1:6379, of the cluster's head")
        self.address = address
        self.nodes: dict[str, NodeJoined] = {}  # that can take part in a night, by Ray's identifier
        self.refused: dict[str, str] = {}  # with the reason
        self.found: tuple[NodeJoined, ...] = ()  # all nodes that there were when it was connected
        self.awaited: set[str] = set()  # nodes whose device is not known yet
        self.content: Content | None = None
        self._link: Link | None = None
        self._asked = 0
        self.is_connected = False
        self.why_not: str | None = None

    # ---- the broker ----

    @property
    def is_started(self) -> bool:
        return self._link is not None

    def start(self) -> None:
        """Start a broker, which connects; return at once."""
        self._link, self.why_not = Link(is_own_cluster=self.address is None), None
        self.send(Connect(self.address, str(self._link.folder / "ray")))

    def send(self, order: ToBroker) -> None:
        if self._link is not None:
            self._link.send(order)

    def consult(self, node_id: str, call: NodeCall) -> int:
        """Send a question to a node, and return its number."""
        self._asked += 1
        self.send(Consult(self._asked, node_id, call))
        return self._asked

    def events(self, wait_s: float) -> list[FromBroker]:
        """Return what the broker has said; wait at most wait_s for the first. Raise EOFError if it has ended."""
        if self._link is None:
            time.sleep(wait_s)
            return []
        try:
            found = self._link.receive(wait_s)
        except EOFError:
            self.why_not = self.why_not or self._link.last_line
            self.close()
            raise
        for event in found:
            self._note(event)
        return found

    def _note(self, event: FromBroker) -> None:
        match event:
            case Connected(nodes):
                self.is_connected = True
                self.found = nodes
                self.awaited = {node.id for node in nodes}
                if self.content is not None:
                    self.send(Join(self.content))
            case Unreachable(why):
                self.why_not = why
            case NodeJoined() as joined:
                self.awaited.discard(joined.id)
                unusable = unfit(joined, versions()) if joined.cpus else None  # without any, it is for drivers alone
                if unusable is not None:
                    self.refused[joined.id] = unusable
                elif joined.cpus:
                    self.nodes[joined.id] = joined
            case NodeLeft(node_id):
                self.awaited.discard(node_id)
                self.nodes.pop(node_id, None)
                self.refused.pop(node_id, None)

    def close(self) -> None:
        """End the broker, and with it a cluster of ours."""
        self.is_connected = False
        self.nodes.clear()
        self.refused.clear()
        if self._link is not None:
            self._link.close()
            self._link = None

    # ---- its devices ----

    def open(self) -> None:
        """Connect; raise MachineError where that is not possible."""
        self.start()
        self._wait_for(lambda: self.is_connected, CONNECT_S)

    def _wait_for(self, is_so: Callable[[], bool], most_s: float) -> None:
        deadline = time.monotonic() + most_s
        at = f"the Ray cluster at {self.address}" if self.address else "a Ray cluster on this machine"
        while not is_so():
            with suppress(EOFError):
                self.events(0.2)
            if self.why_not is not None:
                raise MachineError(f"{at} cannot be used: {in_words(self.why_not)}")
            if time.monotonic() > deadline:
                raise MachineError(f"{at} gave no answer in {most_s:.0f} s; look at: ray status")

    def device(self, content: Content, wanted: str | None) -> NodeDevice:
        """Bring the content to all nodes, and return the device of a night; raise MachineError if no node is fit."""
        self.content = content
        self.send(Join(content))
        self._wait_for(lambda: not self.awaited, LOOK_S)
        found = usual([node.device for node in self.nodes.values() if node.device is not None], wanted)
        if found is None:
            why = "; ".join(sorted(self.refused.values())) or "none has cores for tasks"
            raise MachineError(f"no node of the Ray cluster can take part: {why}")
        return found

    def facts(
        self, terms: Terms, folder: Path, files: Sequence[str], here: Mapping[str, Any], wanted: str | None = None
    ) -> dict[str, Any]:
        """Return the facts of probe() with the device of the nodes, the wanted one if there is, for this machine's."""
        corpus = Path(here["data"])
        contents = (digests_of(folder, files), digests_of(corpus), str(folder), str(corpus))
        found = asdict(self.device(Content(*contents, terms.sandbox, terms.cores_each), wanted))
        names = ("device_kind", "device", "cores", "memory_bytes", "settings")
        return {**here, **{name: found[name] for name in names}}

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
