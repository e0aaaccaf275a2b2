"""Answer on a node of a Ray cluster: keep the driver's files, say what the node is, and execute jobs.

NodeWorker is an actor, one for each worker of a night. The other public functions are tasks that take no core or GPU,
except look().
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
from agent.experiment import LOCAL, Lease, Night, Progress
from agent.files import read_end, remove
from agent.lab.hardware import cache_root, write_atomically
from agent.pools.leases import cores_of_machine, pin, sets_of_cores
from agent.pools.pool import Working
from agent.runs.execute import Job, Measure, Result, Trial, execute
from agent.runs.fixed import digest, lay_out_warm, probe
from agent.runs.runner import Runner, weights_bytes
from agent.runs.score import SPLITS
from agent.runs.train import METRICS, METRICS_BYTES, SUMMARY_BYTES
from agent.sandbox.box import Mode, choose
from agent.sandbox.process import LOG
from agent.sandbox.watch import limits_of_machine

LOG_BYTES, LOSSES_BYTES = 1 << 20, 1 << 30  # the most of a file that comes back
MIN_FREE_BYTES = 1 << 30  # below it a node takes no job: the disk would fill in the middle of one
DEAF_S = 15.0  # without a question from the driver: it is gone, and so is the job
LOCK_S = 10.0  # that a worker which has just ended may hold its part of the machine


@dataclass(frozen=True, slots=True)
class Share:
    """Hold the part of a node that one worker takes."""

    cores: int
    gpus: int = 0
    of_memory: float = 1.0


@dataclass(frozen=True, slots=True)
class Content:
    """Name the folders of a node's cache with the files that every node needs, and how it runs scripts."""

    fixed_in: str
    corpus_in: str
    sandbox: str  # a value of Mode


@dataclass(frozen=True, slots=True)
class Returned:
    """Hold the result and the small files of a job, or why there is none."""

    result: Result | None = None  # without a failure either: the driver asked to end the job
    failure: str | None = None  # of this node
    files: Mapping[str, bytes] = field(default_factory=dict)  # by their path in the night's folder


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
    return [name for name, checksum in files.items() if not _is_file(here / name) or digest(here / name) != checksum]


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def store(folder: str, name: str, content: bytes) -> None:
    """Write a file to a folder of the node's cache."""
    write_atomically(place_in(home() / folder, name), content)


def place_in(folder: Path, name: str) -> Path:
    """Return the path for a file below a folder, free of any link or pipe that a script has left on the way."""
    at, above = folder / name, [folder / parent for parent in Path(name).parents][-2::-1]  # from the top
    for parent in above:
        if parent.is_symlink() or not parent.is_dir():
            remove(parent)
    if not _is_file(at):
        remove(at)
    at.parent.mkdir(parents=True, exist_ok=True)
    return at


def fetch(night: Night, attempt: int, seed: int) -> bytes:
    """Return the weights of a run."""
    weights = _idle_runner(night).weights(attempt, seed)
    if weights_bytes(weights.parents[1]) is None:
        raise MachineError(f"the weights of #{attempt} with seed {seed} are gone")
    return weights.read_bytes()


def drop(night: Night, attempt: int, seed: int) -> None:
    """Delete the weights and losses of a run."""
    _idle_runner(night).drop_weights(attempt, seed)


def _idle_runner(night: Night) -> Runner:
    """Return a runner that starts no process."""
    box, limits = choose(Mode.OFF), limits_of_machine()
    return Runner(night, night_folder(night), box, limits, None, lambda: False, lambda progress, elapsed_s: None)


# ---- the node --------------------------------------------------------------------------------------------------------


def look(content: Content, share: Share, mlx: str) -> dict[str, Any]:
    """Return the facts of this node's device as a night on one machine finds them; raise MachineError if it is unfit.

    mlx: its version on the driver's machine.
    """
    here = version("mlx")
    if here != mlx:
        raise MachineError(f"it has MLX {here}, and on the driver's machine it is {mlx}; install that here")
    choose(Mode(content.sandbox))
    sets = core_sets(share)
    lease = lease_of(LOCAL, share, sets[0] if sets else ())
    return probe(home() / content.fixed_in, str(home() / content.corpus_in), lease=lease)


def core_sets(share: Share) -> list[tuple[int, ...]]:
    """Return the sets of cores that workers of this machine can be pinned to."""
    cores = cores_of_machine() if hasattr(os, "sched_getaffinity") else ()
    return sets_of_cores(cores, min(share.cores, sum(map(len, cores)))) if cores else []


def lease_of(worker: str, share: Share, cores: tuple[int, ...]) -> Lease:
    """Return the lease of a worker; one that has all cores is not pinned, as where a night has one worker."""
    threads = sum(map(len, cores_of_machine())) if cores else 0
    own = (cores, threads) if len(cores) < threads else ((), None)
    return Lease(worker, own[0], os.environ.get("CUDA_VISIBLE_DEVICES") or None, share.of_memory, own[1])


def night_folder(night: Night) -> Path:
    """Return the folder of a night on this node; another night of the same tag has another one, whenever it began."""
    own = night.id or "".join(char for char in night.started if char.isdigit())
    return home() / "nights" / f"{night.tag}-{night.protocol}-{own}"


def enter(night: Night, content: Content) -> tuple[tuple[int, int], ...]:
    """Lay out a night's folder as on the driver's machine; return the runs whose weights are in it already."""
    folder = night_folder(night)
    if not (folder / "fixed").is_dir():
        aside = folder / f"fixed.{os.getpid()}.new"
        shutil.copytree(home() / content.fixed_in, aside)
        lay_out_warm(folder)  # it was compiled when the device was looked at
        with suppress(OSError):  # another worker was faster
            aside.rename(folder / "fixed")
        remove(aside)
    runs = [path for path in sorted(folder.glob("runs/*/seed*")) if weights_bytes(path) is not None]
    names = [(path.parent.name, path.name.removeprefix("seed")) for path in runs]
    return tuple((int(attempt), int(seed)) for attempt, seed in names if attempt.isdigit() and seed.isdigit())


# ---- jobs ------------------------------------------------------------------------------------------------------------


class NodeWorker:
    """Execute the jobs of one worker with a part of this node; progress() is answered meanwhile."""

    def __init__(self) -> None:
        self._locks = ExitStack()
        self._working = Working(None, 0.0)
        self._heard_s = time.monotonic()
        self._is_to_end = threading.Event()

    def open(self, night: Night, content: Content, worker: str, share: Share, allowance_s: float | None) -> None:
        """Take cores, and the GPU that Ray has chosen, while the actor lives; raise MachineError if none is free."""
        enter(night, content)
        if gpu := os.environ.get("CUDA_VISIBLE_DEVICES"):
            lock_one("gpu", [(gpu.replace("/", "_"),)], self._locks)
        sets = core_sets(share)
        cores = tuple(map(int, lock_one("core", sets, self._locks))) if sets else ()
        self._runner = Runner(
            replace(night, data=str(home() / content.corpus_in)), night_folder(night), choose(Mode(content.sandbox)),
            limits_of_machine(share.of_memory), allowance_s, self._stopped, self._note, root=home(),
            lease=lease_of(worker, share, cores),
        )  # fmt: skip

    def execute(self, job: Job) -> Returned:
        """Execute a job; return its result and its small files."""
        self._heard_s, self._working = time.monotonic(), Working(None, 0.0)
        if shutil.disk_usage(home()).free < MIN_FREE_BYTES:
            return Returned(failure=f"less than {MIN_FREE_BYTES / 2**30:.0f} GB are free on the disk of {home()}")
        pin(self._runner.lease)
        try:
            result = execute(job, self._runner)
        except (MachineError, OSError) as error:
            return Returned(failure=str(error))
        return Returned(result, files=small_files(self._runner, job))

    def progress(self, *, is_to_end: bool) -> Working:
        """Return how far the job is; end it if the driver wants that, now or when it begins."""
        self._heard_s = time.monotonic()
        if is_to_end:
            self._is_to_end.set()
        return self._working

    def _stopped(self) -> bool:
        return self._is_to_end.is_set() or time.monotonic() - self._heard_s > DEAF_S

    def _note(self, progress: Progress | None, elapsed_s: float) -> None:
        self._working = Working(progress, elapsed_s)


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
                    file = taken.enter_context((folder / f"{kind}-{name}").open("w"))
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.push(taken.pop_all())
                return names
        if time.monotonic() > deadline:
            raise MachineError(f"another night uses all of its {kind}s")
        time.sleep(0.1)


def small_files(runner: Runner, job: Job) -> Mapping[str, bytes]:
    """Return the files of a job that the driver's records and charts are made of, each up to a size."""
    contents: dict[str, bytes] = {}
    for name, most_bytes in files_of(runner, job).items():
        path = runner.folder / name
        with suppress(OSError):
            contents[name] = read_end(path.parent, path.name, most_bytes)
    return contents


def files_of(runner: Runner, job: Job) -> Mapping[str, int]:
    """Return the most bytes of each small file that a job leaves, by its path in the night's folder."""
    if isinstance(job, Trial):
        sizes = {runner.dry_folder(job.attempt) / LOG: LOG_BYTES}
    elif isinstance(job, Measure):
        out = runner.run_folder(job.attempt, job.seed) / "out"
        sizes = {out.parent / LOG: LOG_BYTES, out / METRICS: METRICS_BYTES, out / "summary.json": SUMMARY_BYTES}
        sizes[runner.score_folder(job.attempt, job.seed) / LOG] = LOG_BYTES
        for split in SPLITS if job.dawn else SPLITS[:1]:
            sizes[runner.losses(job.attempt, job.seed, split)] = LOSSES_BYTES
    else:
        sizes = {runner.audit_folder(job.attempt, job.seed) / LOG: LOG_BYTES}
    return {path.relative_to(runner.folder).as_posix(): most_bytes for path, most_bytes in sizes.items()}
