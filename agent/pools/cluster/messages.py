"""The data of calls to nodes, and the orders and events between the driver of a night and its broker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.experiment import Night, Progress
from agent.runs.execute import Result
from agent.runs.jobs import Job
from agent.sandbox.box import Box

Digests = Mapping[str, str]  # the path of a file below its folder → its sha256
NodeCall = Callable[..., object]  # a function of node.py with its arguments; a job's takes a Reporter as well


@dataclass(frozen=True, slots=True)
class NodeShare:
    """Hold the part of a node that one worker takes."""

    cores: int
    of_memory: float = 1.0


@dataclass(frozen=True, slots=True)
class Content:
    """Name, by their checksums, the files that every node needs, and where the driver has them."""

    fixed: Digests
    corpus: Digests
    fixed_at: str
    corpus_at: str
    sandbox: str  # a value of Mode
    cores_each: int | None = None  # that a worker takes; None: all of a node's, or of those for one GPU

    def cores_of(self, cpus: int, gpus: int) -> int:
        """Return the cores of one worker of a node that has these."""
        return self.cores_each or max(1, cpus // max(1, gpus))


# ---- calls to a node -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Perform:
    """Have a node execute a job."""

    night: Night
    content: Content
    job: Job
    worker: str
    share: NodeShare
    box: Box  # that the node chose when it was looked at
    allowance_s: float | None
    sent: Digests  # files of the night's folder that the job needs and another machine made


# ---- answers of a node -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """Hold the versions that have to be equal on all nodes of a night."""

    python: str  # 3.11
    mlx: str | None  # None: it is not installed


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """Hold the device of a node, as one worker has it."""

    device_kind: str
    device: str
    fingerprint: str  # of the corpus
    budget_s: float
    cores: int
    memory_bytes: int
    box: Box
    settings: str = ""  # that are not as usual there


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold a piece of a run's weights."""

    content: bytes
    total_bytes: int
    digest: str | None  # of the whole file, with the last piece


@dataclass(frozen=True, slots=True)
class Returned:
    """Hold the result and the small files of a job, or why there is none."""

    result: Result | None = None  # with neither of the others: the driver asked to end the job
    error: str | None = None  # of the machine, as a night on one machine would end with it
    unwell: str | None = None  # why this node can do no work now
    files: Mapping[str, bytes] = field(default_factory=dict)  # by their path in the night's folder


# ---- orders to the broker --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Have the broker join the cluster at an address, or begin one on this machine."""

    address: str | None
    temporary: str  # a folder for the files of a cluster on this machine


@dataclass(frozen=True, slots=True)
class Join:
    """Have the broker bring the content to all nodes, those that come later included."""

    content: Content


@dataclass(frozen=True, slots=True)
class BeginJob:
    """Have the broker execute a job on a node."""

    number: int  # of the job: a node that comes back has workers of the same names
    node_id: str
    cpus: int
    gpus: int
    perform: Perform
    files: Mapping[str, str]  # the files to send first: sha256 → their path here


@dataclass(frozen=True, slots=True)
class EndJob:
    """Have the broker end a worker's job."""

    worker: str


@dataclass(frozen=True, slots=True)
class Consult:
    """Have the broker make a call to a node that is short and takes no part of its device."""

    number: int  # of the answer
    node_id: str
    call: NodeCall


ToBroker = Connect | Join | BeginJob | EndJob | Consult


# ---- events from the broker ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """Say which nodes there are."""

    nodes: "tuple[NodeJoined, ...]"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Say why there is no cluster."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """Say what a node is, or why it cannot be used."""

    id: str  # Ray's own
    name: str
    cpus: int
    gpus: int
    versions: Versions | None = None
    device: NodeDevice | None = None
    why: str | None = None  # there is no device


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """Say that a node is gone."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Say how far a job is."""

    worker: str
    progress: Progress | None
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """Say how a job ended."""

    worker: str
    number: int  # of the job
    outcome: Returned | None = None
    lost: str | None = None  # why there is no outcome
    was_killed: bool = False  # the job's process alone, while its node went on


@dataclass(frozen=True, slots=True)
class Consulted:
    """Give the answer of a node, or why there is none."""

    number: int
    answer: object = None
    why: str | None = None


FromBroker = Connected | Unreachable | NodeJoined | NodeLeft | Progressed | Done | Consulted
