"""Answer on a node of a Ray cluster: keep the driver's files, say what the node is, and execute jobs.

NodeWorker is an actor, one for each worker of a night. The other public functions are tasks that take no core or GPU,
except inspect_node().
"""

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent.errors import MachineError
from agent.experiment import SPLITS, Night, Run
from agent.files import MIN_FREE_BYTES, open_plain, read_tail, remove
from agent.lab.hardware import cache_root, write_atomically
from agent.pools.device_slots import cores_of_machine, sets_of_cores
from agent.runs.execute import execute
from agent.runs.fixed import digest, lay_out_warm, probe
from agent.runs.jobs import Job, Measure, Result, Trial
from agent.runs.reported import SUMMARY_BYTES
from agent.runs.runner import Runner, beside
from agent.runs.train import METRICS, METRICS_BYTES
from agent.sandbox.process import LOG
from agent.sandbox.sandboxes import choose
from agent.sandbox.supervisor import limits_of_machine
from agent.work import LOCAL, DeviceSlot, Progress

LOG_BYTES, LOSSES_BYTES = 1 << 20, 1 << 30  # most bytes that come back of a log, and of losses
DEAF_S = 15.0  # s without a question from the driver, after which the driver and its job are taken for lost
LOCK_S = 10.0  # s that a worker which has just ended may still hold its part of the machine

FileContents = Mapping[str, bytes]  # path below a folder → content


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a node that one worker takes."""

    cores: int
    gpus: int = 0
    of_memory: float = 1.0


@dataclass(frozen=True, slots=True)
class Content:
    """Name the folders of a node's cache with the files that every node needs, and how it runs scripts."""

    fixed_in: str
    corpus_in: str
    sandbox: str  # a value of --sandbox


@dataclass(frozen=True, slots=True)
class Returned:
    """The result and the files of a job, or why there is none."""

    result: Result | None = None  # None without a failure: the driver asked to end the job
    failure: str | None = None  # why this node failed
    files: FileContents = field(default_factory=dict)  # path in the night's folder → content


def called(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function of this file, as a task."""
    return function(*arguments)


# ---- files -----------------------------------------------------------------------------------------------------------


def home() -> Path:
    """Return the folder of a node for all that nights of a cluster keep there."""
    return cache_root() / "ray"


def lacks(folder: str, files: Mapping[str, str]) -> list[str]:
    """Return those of the files, name → sha256, that this folder of the node's cache lacks, or has in another form."""
    here = home() / folder
    here.mkdir(parents=True, exist_ok=True)
    return [name for name, checksum in files.items() if not (here / name).is_file() or digest(here / name) != checksum]


def store(folder: str, files: FileContents) -> None:
    """Write files to a folder of the node's cache."""
    put_files(home() / folder, files)


def put_files(folder: Path, files: FileContents) -> None:
    """Write files below a folder, through no link or pipe that a script has left on the way; flush them to the disk."""
    for name, content in files.items():
        for above in [folder / parent for parent in Path(name).parents][-2::-1]:  # the topmost folder first
            if above.is_symlink() or not above.is_dir():
                remove(above)
        if (folder / name).is_dir():
            remove(folder / name)
        write_atomically(folder / name, content)


# ---- the node --------------------------------------------------------------------------------------------------------


def inspect_node(content: Content, part: Part, mlx: str) -> dict[str, Any]:
    """Return the facts of this node's device as a night on one machine finds them; raise MachineError if it is unfit.

    mlx: its version on the driver's machine.
    """
    here = version("mlx")
    if here != mlx:
        raise MachineError(f"it has MLX {here}, and on the driver's machine it is {mlx}; install that here")
    choose(content.sandbox)
    sets = core_sets(part)
    slot = slot_of(LOCAL, part, sets[0] if sets else ())
    return probe(home() / content.fixed_in, str(home() / content.corpus_in), slot=slot)


def core_sets(part: Part) -> list[tuple[int, ...]]:
    """Return the sets of cores that workers of this machine can be pinned to."""
    cores = cores_of_machine() if hasattr(os, "sched_getaffinity") else ()
    return sets_of_cores(cores, min(part.cores, sum(map(len, cores)))) if cores else []


def slot_of(worker: str, part: Part, cores: tuple[int, ...]) -> DeviceSlot:
    """Return the device slot of a worker; one that has all cores is not pinned, as where a night has one worker."""
    threads = sum(map(len, cores_of_machine())) if cores else 0
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    if len(cores) == threads:
        return DeviceSlot(worker, (), gpu, part.of_memory)
    return DeviceSlot(worker, cores, gpu, part.of_memory, threads)


def night_folder(night: Night) -> Path:
    """Return the folder of a night on this node."""
    return home() / "nights" / f"{night.tag}-{night.protocol}-{night.id}"


def enter(night: Night, content: Content) -> None:
    """Lay out a night's folder as on the driver's machine."""
    folder = night_folder(night)
    if not (folder / "fixed").is_dir():
        aside = folder / "fixed.new"
        remove(aside)
        shutil.copytree(home() / content.fixed_in, aside)
        lay_out_warm(folder)  # looking at the device has compiled it
        aside.rename(folder / "fixed")


# ---- jobs ------------------------------------------------------------------------------------------------------------


class NodeWorker:
    """Execute the jobs of one worker with a part of this node; progress() is answered meanwhile."""

    def __init__(self) -> None:
        self._locks = ExitStack()
        self._progress: Progress | None = None
        self._heard_s = time.monotonic()
        self._is_to_end = threading.Event()

    def open(self, night: Night, content: Content, worker: str, part: Part) -> None:
        """Take cores, and the GPU that Ray has chosen, while the actor lives; raise MachineError if none is free."""
        if gpu := os.environ.get("CUDA_VISIBLE_DEVICES"):
            lock_one("gpu", [(gpu.replace("/", "_"),)], self._locks)
        sets = core_sets(part)
        cores = tuple(map(int, lock_one("core", sets, self._locks))) if sets else ()
        self._runner = Runner(
            replace(night, data=str(home() / content.corpus_in)), night_folder(night), choose(content.sandbox),
            limits_of_machine(part.of_memory), self._stopped, self._note, root=home(),
            slot=slot_of(worker, part, cores),
        )  # fmt: skip

    def execute(self, job: Job, files: FileContents) -> Returned:
        """Execute a job with these files of the driver; return its result and the files that it has left."""
        self._heard_s, self._progress = time.monotonic(), None
        if shutil.disk_usage(home()).free < MIN_FREE_BYTES:  # the disk would be full in the middle of the job
            return Returned(failure=f"less than {MIN_FREE_BYTES / 2**30:.0f} GB are free on the disk of {home()}")
        runner = self._runner
        try:
            put_files(runner.folder, files)
            result = execute(job, runner)
            returned = Returned(result, files=files_left(runner, job, result))
            if not isinstance(job, Trial):
                runner.drop_weights(job.attempt, job.seed)
        except (MachineError, OSError) as error:
            return Returned(failure=str(error))
        return returned

    def progress(self, *, is_to_end: bool) -> Progress | None:
        """Return how far the job is; end it if the driver wants that, now or when it begins."""
        self._heard_s = time.monotonic()
        if is_to_end:
            self._is_to_end.set()
        return self._progress

    def _stopped(self) -> bool:
        return self._is_to_end.is_set() or time.monotonic() - self._heard_s > DEAF_S

    def _note(self, progress: Progress | None) -> None:
        self._progress = progress


def lock_one(kind: str, wanted: Sequence[tuple[Any, ...]], held: ExitStack) -> tuple[Any, ...]:
    """Lock the parts of the first of these sets that are all free, in a file each.

    Ray counts cores but does not tell which ones, and workers of other nights and clusters on this machine may have
    sets of another size. The locks end with `held` or with the process. Raise MachineError if no set is free.
    """
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_S
    while True:
        for names in wanted:
            with ExitStack() as taken, suppress(BlockingIOError):
                for name in names:
                    file = taken.enter_context((folder / f"{kind}-{name}").open("wb"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.push(taken.pop_all())
                return names
        if time.monotonic() > deadline:
            raise MachineError(f"another night uses all of its {kind}s")
        time.sleep(0.1)


def files_left(runner: Runner, job: Job, result: Result | None) -> FileContents:
    """Return the files of a job that the driver keeps: weights if they have a score, and the end of each other file."""
    contents: dict[str, bytes] = {}
    has_score = isinstance(result, Run) and result.val_bpb is not None
    for name, most_bytes in files_of(runner, job).items():
        path = runner.folder / name
        if most_bytes is not None or has_score:
            with suppress(OSError), open_plain(path.parent, path.name) as file:
                contents[name] = file.read() if most_bytes is None else read_tail(file, most_bytes)
    return contents


def files_of(runner: Runner, job: Job) -> Mapping[str, int | None]:
    """Return the most bytes of each file that a job leaves, by its path in the night's folder; None: of weights."""
    sizes: dict[Path, int | None]
    if isinstance(job, Trial):
        sizes = {runner.dry_folder(job.attempt) / LOG: LOG_BYTES}
    elif isinstance(job, Measure):
        out = runner.run_folder(job.attempt, job.seed) / "out"
        sizes = {out.parent / LOG: LOG_BYTES, out / METRICS: METRICS_BYTES, out / "summary.json": SUMMARY_BYTES}
        sizes[runner.weights(job.attempt, job.seed)] = None  # those with a score are no larger than the job allows
        sizes[beside(out.parent, "score") / LOG] = LOG_BYTES
        for split in SPLITS if job.confirmation else SPLITS[:1]:
            sizes[runner.losses(job.attempt, job.seed, split)] = LOSSES_BYTES
    else:
        sizes = {beside(runner.run_folder(job.attempt, job.seed), "audit") / LOG: LOG_BYTES}
    return {path.relative_to(runner.folder).as_posix(): most_bytes for path, most_bytes in sizes.items()}
