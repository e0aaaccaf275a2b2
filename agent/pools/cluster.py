"""Reach a Ray cluster, bring the harness's code and files to its nodes, and learn which devices they have.

Ray's library ends its process when the head of the cluster is gone; outlive_cluster() starts it again.
"""

import atexit
import os
import re
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from agent.errors import MachineError, NightError, NightshiftError
from agent.experiment import Night, Options
from agent.files import throwaway_folder
from agent.invocation import PACKAGE, command_for
from agent.lab.hardware import usable_cores
from agent.pools.node import Content, Part, called, inspect_node, lacks, store
from agent.runs.fixed import digest, names_in, protocol
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.supervisor import PR_SET_PDEATHSIG, prctl

ADDRESS = r"auto|([^:/\s]+|\[[0-9a-fA-F:]+\]):\d{1,5}"
INSPECT_S, CALL_S = 600.0, 300.0  # s for looking at all nodes; s for one answer, or one file
AGAIN_S = 10.0  # s between attempts to reach a lost cluster
SHORT = Path("/tmp")  # TMPDIR may be long, and the path of a socket of Ray has 107 bytes at most
STORE_BYTES = 256 << 20  # bytes of Ray's object store on this machine; larger weights go over the disk
ENDED = b"\0"  # a process of outlive_cluster() says this at its end; one that Ray ends does not
REMEDY = "start Ray there and here with one RAY_AUTH_MODE and token, as docs/devices.md says, or correct the address"
GONE = 75  # the exit code where Ray on this machine is gone
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # Ray would send the working directory of `uv run` to every node
    "RAY_ROTATION_MAX_BYTES": f"{10 << 20}",  # bytes of each of Ray's own logs
    "RAY_ROTATION_BACKUP_COUNT": "1",
    "RAY_memory_monitor_refresh_ms": "0",  # the harness watches memory itself, and knows whose fault a shortage is
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # Ray's library writes to our standard error; the pool says the same
    "RAY_worker_niceness": "0",  # Ray's default is 15: other programs of the machine would go first
    "RAY_raylet_start_wait_time_s": "120",  # s; a busy machine needs longer than the default
    "RAY_num_workers_soft_limit": "1024",  # keep the processes of calls: starting one takes a second
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",  # then the head is gone
}

Files = Mapping[str, tuple[Path, str]]  # the path of a file below its folder → its place here, and its sha256


# ---- a process for Ray -----------------------------------------------------------------------------------------------


def outlive_cluster() -> tuple[str | None, Callable[[bytes], object]]:
    """Fork a process for the night, which Ray may end; if Ray does, fork another one. Return in each forked process.

    Return the tag of the resumed night, None at first, and a function to call with the tag of a night that has opened.
    The calling process only waits, passes signals on, and exits like the last fork. There, raise MachineError if Ray
    has ended a fork before a night was opened, KeyboardInterrupt if a signal has.
    """
    tag: str | None = None
    is_interrupted = False
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    # nohup has one ignored
    before = {number: was for number in numbers if (was := signal.getsignal(number)) is not signal.SIG_IGN}
    while True:
        reader, writer = os.pipe()
        sys.stdout.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, before)  # a signal could be lost until each process has its handlers
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.setsid()  # signals of the terminal come from the process that waits, and reach nothing of Ray
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
            atexit.register(os.write, writer, ENDED)
            return tag, partial(os.write, writer)
        os.close(writer)

        def pass_on(number: int, frame: object, child: int = child) -> None:
            nonlocal is_interrupted
            is_interrupted = True
            with suppress(ProcessLookupError):
                os.kill(child, number)

        for number in before:
            signal.signal(number, pass_on)
        sweeper = _sweeper_of(child, reader)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
        while (ended := os.wait())[0] != child:
            if ended[0] == sweeper:  # the sweeper was killed; other children are git's
                sweeper = _sweeper_of(child, reader)
        code = os.waitstatus_to_exitcode(ended[1])
        os.waitpid(sweeper, 0)
        with os.fdopen(reader, "rb") as pipe:
            message = pipe.read()
        tag = message.removesuffix(ENDED).decode() or tag
        if message.endswith(ENDED):
            sys.exit(130 if is_interrupted and tag is None else code)  # native code of Ray may fail at a signal
        if code == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if tag is None:
            error = MachineError("Ray ended before the night had opened; look at: ray status, and try again")
            raise KeyboardInterrupt if is_interrupted else error
        print(f"the Ray cluster is gone, and is asked for again; night {tag} goes on", flush=True)


def _sweeper_of(process: int, pipe: int) -> int:
    """Start a process that waits for this one, and then ends what Ray has left of its session; return its id.

    Ray's agents outlive a driver that is killed. pipe: is closed at the other end once the process has ended.
    """
    sweeper = os.fork()
    if sweeper:
        return sweeper
    os.setsid()
    ends = select.poll()
    ends.register(pipe, 0)
    ends.poll()
    for _ in range(100):
        remaining = [other for other in psutil.process_iter() if _session_of(other) == process]
        for other in remaining:
            with suppress(psutil.Error):
                other.kill()
        if not remaining:
            break
        time.sleep(0.05)
    os._exit(0)


def _session_of(process: psutil.Process) -> int | None:
    with suppress(psutil.Error, ProcessLookupError):
        return os.getsid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    return None


@contextmanager
def _only_environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment during the `with` block, so that processes that begin there inherit no keys."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _silent() -> Iterator[None]:
    """Drop what Ray's library writes to our standard error during the `with` block."""
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)


# ---- nodes -----------------------------------------------------------------------------------------------------------

NOTHING = Part(0)  # the part of a node for a short call: nothing


@dataclass(eq=False, slots=True)
class ClusterNode:
    """A node of the cluster, and the facts about it."""

    id: str  # Ray's own
    name: str
    cpus: int
    gpus: int
    facts: Mapping[str, Any] | None = None  # facts of its device, once it was inspected
    refused: str | None = None  # why it is not used, without its name
    is_met: bool = False  # the night has given it workers, or refused it
    rests_until: float = 0.0
    failures: int = 0  # number of failures in a row

    @property
    def is_pending(self) -> bool:
        return self.facts is None and self.refused is None


class Cluster:
    """The connection to a cluster; without an address, to one that runs on this machine as long as the night."""

    def __init__(self, address: str | None) -> None:
        if find_spec("ray") is None:
            raise MachineError(f"--pool ray needs the package ray; install it with: {command_for('ray')}")
        if address is not None and not re.fullmatch(ADDRESS, address):
            raise NightError(f"--ray-address {address} is no HOST:PORT, such as 10.0.0.1:6379, of the cluster's head")
        self.address = address
        self.nodes: dict[str, ClusterNode] = {}  # key: Ray's identifier
        self.content: Content | None = None
        self.cores_each: int | None = None  # cores for each worker; None: all of a node's, or each GPU's share
        self._files: Mapping[str, Files] = {}  # folder of a node's cache → files that every node needs
        self._undo = ExitStack()
        self._own_node, self._patient_until = "", 0.0
        self._task: Any = None

    def open(self, patience_s: float = 0.0) -> None:
        """Connect; without a cluster, try again for patience_s, and then raise MachineError."""
        self._patient_until = time.monotonic() + patience_s
        while True:
            try:
                return self._connect()
            except (OSError, RuntimeError, ValueError) as error:
                if time.monotonic() >= self._patient_until:
                    why = f"the Ray cluster at {self.address or 'this machine'} cannot be used ({sentence(error)})"
                    raise MachineError(f"{why}; {REMEDY}") from error
                time.sleep(AGAIN_S)

    def _connect(self) -> None:
        of_ray = {name: value for name, value in os.environ.items() if name.startswith("RAY_")} | SETTINGS
        own: dict[str, Any] = {}
        if self.address is None:
            of_ray |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
            folder = str(self._undo.enter_context(throwaway_folder(SHORT)))
            own = {"_temp_dir": folder, "_node_name": "ray", "num_cpus": usable_cores(), "include_dashboard": False}
            own["object_store_memory"] = STORE_BYTES
        elif self.address != "auto":
            host, _, port = self.address.rpartition(":")
            # Without a head, Ray would end this process.
            socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
        with throwaway_folder() as code, _only_environment(scrubbed_env("") | of_ray), _silent():
            import ray
            from ray._private import worker

            worker.print_to_stdstream = lambda *words, **more: None  # the pool itself says that a process is lost
            shutil.copytree(PACKAGE, code / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
            ray.init(
                address=self.address or "local", log_to_driver=False, configure_logging=False, namespace="nightshift",
                runtime_env={"working_dir": str(code)}, **own,
            )  # fmt: skip
        self._undo.callback(ray.shutdown)
        self._task = ray.remote(max_retries=0)(called)  # made once: Ray keeps a copy of each
        self._own_node = ray.get_runtime_context().get_node_id()

    def close(self) -> None:
        """Leave the cluster, and end one of ours."""
        self._undo.close()

    def call(self, node: ClusterNode, function: Callable[..., Any], *arguments: object, part: Part = NOTHING) -> Any:
        """Have a node call a function of node.py, and return its answer; raise MachineError where there is none."""
        import ray
        from ray.exceptions import RayError

        task = self._task.options(num_cpus=part.cores, num_gpus=part.gpus, scheduling_strategy=on(node))
        try:
            return ray.get(task.remote(function, *arguments), timeout=CALL_S)
        except (RayError, OSError, ImportError, NightshiftError) as error:
            raise MachineError(sentence(error)) from error

    def send(self, node: ClusterNode, folder: str, files: Files) -> None:
        """Send files to a folder of a node's cache, unless they are there; raise MachineError or OSError."""
        for name in self.call(node, lacks, folder, {name: checksum for name, (_, checksum) in files.items()}):
            self.call(node, store, folder, {name: files[name][0].read_bytes()})

    # ---- nodes ----

    def listed(self) -> dict[str, ClusterNode]:
        """Return the nodes that have cores for workers, as Ray lists them; end the process where Ray here is gone."""
        import ray

        alive: dict[str, Any] = {}
        with suppress(ray.exceptions.RayError):
            alive = {facts["NodeID"]: facts for facts in ray.nodes() if facts["Alive"]}
        if self._own_node not in alive:
            os._exit(GONE)  # nothing can be done by this process; outlive_cluster() starts another one
        nodes = {}
        for node_id, facts in alive.items():
            has = {name: int(facts["Resources"].get(name, 0)) for name in ("CPU", "GPU")}
            if has["CPU"]:  # a node without CPUs is for drivers only
                nodes[node_id] = ClusterNode(node_id, facts["NodeName"], has["CPU"], has["GPU"])
        return nodes

    def refresh_nodes(self) -> None:
        """Forget the nodes that have left, and begin to inspect new ones: they get facts, or are refused."""
        listed = self.listed()
        self.nodes = {node_id: self.nodes.get(node_id, node) for node_id, node in listed.items()}
        for node in [node for node in self.nodes.values() if node is listed[node.id]]:
            threading.Thread(target=self._inspect, args=(node,), daemon=True).start()

    def _inspect(self, node: ClusterNode) -> None:
        """Bring the files to a node, and learn what device it has."""
        part = self.part_of(node)
        try:
            for folder, files in self._files.items():
                self.send(node, folder, files)
            node.facts = self.call(node, inspect_node, self.content, part, version("mlx"), part=part)
        except (MachineError, OSError) as error:
            node.refused = str(error)

    def part_of(self, node: ClusterNode) -> Part:
        """Return the part of a node that each of its workers takes, with at most one GPU."""
        count = node.gpus or (node.cpus // self.cores_each if self.cores_each else 1)
        return Part(self.cores_each or max(1, node.cpus // count), min(node.gpus, 1), 1 / max(1, count))

    def facts(self, options: Options, fixed: Path, here: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
        """Return the facts of probe() with the device of the nodes, the wanted one if there is, for this machine's.

        Bring fixed files and corpus to all nodes; raise MachineError if none is fit.
        """
        corpus = Path(here["data"])
        plain = [path.name for path in corpus.iterdir() if path.is_file() and not path.name.startswith(".")]
        fixed_in, fixed_files = named_by_content("fixed", fixed, names_in(fixed))
        corpus_in, corpus_files = named_by_content("corpora", corpus, plain)
        self._files = {fixed_in: fixed_files, corpus_in: corpus_files}
        self.content = Content(fixed_in, corpus_in, options.sandbox)
        self.cores_each, device = options.cores_each, self._device(wanted)
        names = ("device_kind", "device", "cores", "memory_bytes", "settings")
        return {**here, **{name: device[name] for name in names}}

    def _device(self, wanted: str | None) -> Mapping[str, Any]:
        """Return the device of a night once all nodes were inspected; raise MachineError if none is fit."""
        deadline = time.monotonic() + INSPECT_S
        while True:
            self.refresh_nodes()
            nodes, now = [*self.nodes.values()], time.monotonic()
            is_pending = any(node.is_pending for node in nodes) and now < deadline
            device = usual([node.facts for node in nodes if node.facts is not None], wanted)
            if device is not None and not is_pending:
                return device
            if not is_pending and now >= self._patient_until:
                refusals = [f"{node.name}: {node.refused}" for node in nodes if node.refused]
                why = "; ".join(sorted(refusals)) or "none has free cores"
                raise MachineError(f"no node of the Ray cluster can take part: {why}; look at: ray status")
            time.sleep(0.2)

    def divided(self, options: Options) -> Options:
        """Return the options with the cores that each worker has; on GPUs, or alone, it has its share of a node."""
        nodes = [*self.listed().values()]
        if options.cores_each or options.workers == 1 or not nodes or any(node.gpus for node in nodes):
            return options
        return replace(options, cores_each=most_each([node.cpus for node in nodes], options.workers))


def on(node: ClusterNode) -> Any:
    """Return the strategy that places a task or an actor on a node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)


def named_by_content(kind: str, folder: Path, names: Iterable[str]) -> tuple[str, Files]:
    """Return the name of a folder for these files in a node's cache, by their names and contents, and the files."""
    files = {name: (folder / name, digest(folder / name)) for name in sorted(names)}
    checksums = [(name, checksum) for name, (_, checksum) in files.items()]
    return f"{kind}/{sha256(repr(checksums).encode()).hexdigest()[:32]}", files


# ---- which nodes take part -------------------------------------------------------------------------------------------


def usual(devices: Sequence[Mapping[str, Any]], wanted: str | None = None) -> Mapping[str, Any] | None:
    """Return the device that a night runs on: the wanted one if a node has it, else the one that most nodes have.

    A node without a GPU among nodes with GPUs is left out.
    """
    of_gpus = [facts for facts in devices if facts["device_kind"] != "cpu"]
    names = [facts["device"] for facts in of_gpus or devices]
    return max(devices, key=lambda facts: (facts["device"] == wanted, names.count(facts["device"])), default=None)


def different(node: ClusterNode, night: Night) -> str | None:
    """Return why scores of a node would not compare with those of a night; None if they would."""
    assert node.facts is not None
    device, now = node.facts["device"], protocol(node.facts, night.budget_s)
    if device != night.device:
        return f"it has {device}, and night {night.tag} runs on {night.device}, so scores would not compare"
    if now != night.protocol:
        return f"its corpus and settings give protocol {now}, and night {night.tag} has {night.protocol}"
    return None


def most_each(cpus: Sequence[int], workers: int) -> int:
    """Return the most cores that each of so many workers can have on nodes with these; at least one."""
    return next((each for each in range(max(cpus), 1, -1) if sum(cpu // each for cpu in cpus) >= workers), 1)


def sentence(error: Exception) -> str:
    """Return an error of a call in one line, without the traces of Ray."""
    from ray.exceptions import RayTaskError

    cause = error.cause if isinstance(error, RayTaskError) else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
