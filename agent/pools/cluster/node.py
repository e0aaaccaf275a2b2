"""Answer the driver's calls on a node: hold content, say what the node is, and execute jobs."""

import errno
import fcntl
import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from agent.errors import MachineError
from agent.experiment import LOCAL, Lease, Night, Progress
from agent.files import read_end, remove
from agent.pools.cluster.content import (
    PIECE_BYTES,
    blob,
    folder_with,
    home,
    is_inside,
    missing,
    place_in,
    put_file,
)
from agent.pools.cluster.messages import (
    Content,
    NodeDevice,
    NodeShare,
    Perform,
    Piece,
    Returned,
    Versions,
)
from agent.pools.leases import cores_of_machine, sets_of_cores
from agent.records.checksums import digest
from agent.runs.execute import execute
from agent.runs.fixed import probe
from agent.runs.jobs import Job, Measure, Trial
from agent.runs.outputs import METRICS, METRICS_BYTES, SUMMARY_BYTES
from agent.runs.runner import Runner, weights_bytes
from agent.runs.score import SPLITS
from agent.sandbox.box import Mode, choose
from agent.sandbox.process import LOG
from agent.sandbox.watch import limits_of_machine

LOG_BYTES, LOSSES_BYTES = 1 << 20, 1 << 30  # the most of a file that comes back
MIN_FREE_BYTES = 1 << 30  # below it a node takes no job: the disk would fill in the middle of one
REPORT_S = 2.0  # between reports of progress
DEAF_S = 7.0  # errors in place of the driver's answer for so long: it is gone, and so is the job
LOCK_S = 10.0  # that a worker which has just ended may hold its part of the machine
KEPT_S = 7 * 24 * 3600.0  # since its last use: nights and files on a node's disk


Name = TypeVar("Name", int, str)


class Reporter:
    """Report a job's progress to the board beside the driver, and learn from it whether to end the job."""

    def __init__(self, board: Any, worker: str) -> None:
        self._board = board  # the actor bootstrap.Board
        self._worker = worker
        self._point: tuple[Progress | None, float] | None = None
        self._to_end = threading.Event()
        self._done = threading.Event()

    @property
    def is_to_end(self) -> bool:
        """Return whether the job is to end: the driver asked for it, or is gone."""
        return self._to_end.is_set()

    def note(self, progress: Progress | None, elapsed_s: float) -> None:
        self._point = (progress, elapsed_s)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Report in a thread during the `with` block."""
        thread = threading.Thread(target=self._report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()

    def _report(self) -> None:
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        heard = time.monotonic()
        while not self._done.wait(REPORT_S if self._point is None else REPORT_S / 2):
            try:
                point = self._point and pickle.dumps(self._point)
                asked = ray.get(self._board.report.remote(self._worker, point), timeout=30)
                heard = time.monotonic()
            except GetTimeoutError:  # a busy machine: the driver may be well
                continue
            except RayError:
                asked = time.monotonic() - heard > DEAF_S
            if asked:
                self._to_end.set()


def lacks(files: Mapping[str, str]) -> tuple[Versions, tuple[str, ...]]:
    """Return the versions here, and the checksums of those files (sha256 → the driver's path) that are not here."""
    return versions(), missing(files)


def versions() -> Versions:
    try:
        mlx = version("mlx")
    except PackageNotFoundError:
        mlx = None
    return Versions(f"{sys.version_info.major}.{sys.version_info.minor}", mlx)


def look(content: Content, share: NodeShare) -> NodeDevice:
    """Look at this node's device as a night on one machine does; raise MachineError where it cannot be used."""
    fixed, corpus = (
        folder_with(kind, files, verify=True) for kind, files in (("fixed", content.fixed), ("corpora", content.corpus))
    )
    sets, threads = core_sets(share)
    facts = probe(fixed, str(corpus), lease=lease_of(LOCAL, share, sets[0] if sets else (), threads))
    names = ("device_kind", "device", "fingerprint", "budget_s", "cores", "memory_bytes", "settings")
    return NodeDevice(**{name: facts[name] for name in names}, box=choose(Mode(content.sandbox)))


# ---- the night's folder ----------------------------------------------------------------------------------------------


def night_folder(night: Night) -> Path:
    """Return the folder of a night on this node; another night of the same tag has another one, whenever it began."""
    own = night.id or "".join(one for one in night.started if one.isdigit())
    return home() / "nights" / f"{night.tag}-{night.protocol}-{own}"


def enter(night: Night, content: Content) -> tuple[tuple[int, int], ...]:
    """Lay out a night's folder as on the driver's machine; return the runs whose weights are in it already."""
    folder = night_folder(night)
    if not (folder / "fixed").is_dir():
        _forget_old(folder.parent)
        fixed, aside = folder_with("fixed", content.fixed), folder / f"fixed.{os.getpid()}.new"
        shutil.copytree(fixed, aside)
        for name in ("kernels", "blas"):  # compiled here when the device was looked at
            if (home().parent / name).is_dir():
                shutil.copytree(home().parent / name, folder / "warm" / "cache" / name, dirs_exist_ok=True)
        with suppress(OSError):  # another worker was faster
            aside.rename(folder / "fixed")
        remove(aside)
    folder.touch()
    runs = [path for path in sorted(folder.glob("runs/*/seed*")) if weights_bytes(path) is not None]
    found = [(path.parent.name, path.name.removeprefix("seed")) for path in runs]
    return tuple((int(attempt), int(seed)) for attempt, seed in found if attempt.isdigit() and seed.isdigit())


def _forget_old(nights: Path) -> None:
    """Delete nights and content that were not used for KEPT_S."""
    for path in (*nights.glob("*"), *(home() / "files").glob("*"), *home().glob("corpora/*"), *home().glob("code/*")):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT_S:
                remove(path)


def fetch(night: Night, attempt: int, seed: int, offset: int) -> Piece:
    """Return a piece of a run's weights, and the checksum of all with the last one."""
    weights = _idle_runner(night).weights(attempt, seed)
    if weights_bytes(weights.parents[1]) is None:
        raise MachineError(f"the weights of #{attempt} with seed {seed} are gone")
    with weights.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        file.seek(offset)
        content = file.read(PIECE_BYTES)
    return Piece(content, total, digest(weights) if offset + len(content) >= total else None)


def drop(night: Night, runs: Sequence[tuple[int, int]]) -> None:
    """Delete the weights and losses of runs, each an attempt and a seed."""
    for run in runs:
        _idle_runner(night).drop_weights(*run)


def _idle_runner(night: Night) -> Runner:
    """Return a runner that starts no process."""
    box, limits = choose(Mode.OFF), limits_of_machine()
    return Runner(night, night_folder(night), box, limits, None, lambda: False, lambda progress, elapsed_s: None)


# ---- a job -----------------------------------------------------------------------------------------------------------


def perform(call: Perform, reporter: Reporter) -> Returned:
    """Execute a job with the part of this node that is free for it; return its result and its small files."""
    home().mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(home()).free < MIN_FREE_BYTES:
        return Returned(unwell=f"less than {MIN_FREE_BYTES / 2**30:.0f} GB are free on the disk of {home()}")
    runner = Runner(
        call.night, night_folder(call.night), call.box, limits_of_machine(call.share.of_memory), call.allowance_s,
        lambda: reporter.is_to_end, reporter.note, root=home(),
    )  # fmt: skip
    try:
        night = replace(call.night, data=str(folder_with("corpora", call.content.corpus)))
        enter(call.night, call.content)
        with leased(call.worker, call.share) as lease, reporter.reporting():
            for name, checksum in call.sent.items():
                _receive(runner.folder, name, checksum)
            result = execute(call.job, replace(runner, night=night, lease=lease))
    except MachineError as error:
        return Returned(error=str(error), files=small_files(runner, call.job))
    except OSError as error:
        return Returned(unwell=f"{error.filename or 'its disk'}: {error.strerror or error}")
    return Returned(result, files=small_files(runner, call.job))


def _receive(folder: Path, name: str, checksum: str) -> None:
    """Put a file that was sent in its place, unless it is there; as the only name of it: weights are refused else."""
    at = place_in(folder, name)
    if at.is_file() and digest(at) == checksum:
        return
    put_file(checksum, at)
    blob(checksum).unlink(missing_ok=True)


@contextmanager
def leased(worker: str, share: NodeShare) -> Iterator[Lease]:
    """Yield a lease of cores, and of the GPU that Ray has chosen; other nights and clusters of this machine see it.

    Ray counts cores but does not tell which ones, so each core has a file that its worker locks: another night's sets
    may be of another size.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    sets, threads = core_sets(share)
    with ExitStack() as held:
        if gpu:
            held.enter_context(_locked("gpu", [(gpu.replace("/", "_"),)]))
        cores = held.enter_context(_locked("core", sets)) if sets else ()
        yield lease_of(worker, share, cores, threads)


def core_sets(share: NodeShare) -> tuple[list[tuple[int, ...]], int]:
    """Return the sets of cores that workers of this machine can be pinned to, and the number of its cores."""
    cores = cores_of_machine() if hasattr(os, "sched_getaffinity") else ()
    threads = sum(map(len, cores))
    return sets_of_cores(cores, min(share.cores, threads)) if threads else [], threads


def lease_of(worker: str, share: NodeShare, cores: tuple[int, ...], threads: int) -> Lease:
    """Return the lease of a worker; one that has all cores is not pinned, as where a night has one worker."""
    own = (cores, threads) if len(cores) < threads else ((), None)
    return Lease(worker, own[0], os.environ.get("CUDA_VISIBLE_DEVICES") or None, share.of_memory, own[1])


@contextmanager
def _locked(kind: str, wanted: Sequence[tuple[Name, ...]]) -> Iterator[tuple[Name, ...]]:
    """Yield the first of these sets of which each part's file could be locked; raise OSError if there is none."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_S
    while True:
        for names in wanted:
            with ExitStack() as held:
                try:
                    for name in names:
                        file = held.enter_context((folder / f"{kind}-{name}").open("w"))
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield names
                return
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, "another night uses all of them", f"its {kind}s")
        time.sleep(0.1)


def small_files(runner: Runner, job: Job) -> Mapping[str, bytes]:
    """Return the files of a job that the driver's records and charts are made of, each up to a size."""
    found: dict[str, bytes] = {}
    for path, most in _of_interest(runner, job):
        with suppress(OSError):
            found[path.relative_to(runner.folder).as_posix()] = read_end(path.parent, path.name, most)
    return {name: content for name, content in found.items() if is_inside(name)}


def _of_interest(runner: Runner, job: Job) -> Iterator[tuple[Path, int]]:
    yield runner.dry_folder(0) / LOG, LOG_BYTES  # made where a failure may be the machine's
    if isinstance(job, Trial):
        yield runner.dry_folder(job.attempt) / LOG, LOG_BYTES
    elif isinstance(job, Measure):
        out = runner.run_folder(job.attempt, job.seed) / "out"
        yield out.parent / LOG, LOG_BYTES
        yield out / METRICS, METRICS_BYTES
        yield out / "summary.json", SUMMARY_BYTES
        yield runner.score_folder(job.attempt, job.seed) / LOG, LOG_BYTES
        for split in SPLITS if job.dawn else SPLITS[:1]:
            yield runner.losses(job.attempt, job.seed, split), LOSSES_BYTES
    else:
        yield runner.audit_folder(job.attempt, job.seed) / LOG, LOG_BYTES
