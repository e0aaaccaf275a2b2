"""Watch that one process tree stays within its part of the machine.

The kernel enforces some limits (RLIMIT_* in keeper.py). The watch covers the others: the memory of all processes
together, the size of a folder, and the machine's reserves of memory and disk, which no run may use up.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MOST_DEPTH = 64  # of folders in folders
QUICK_S, THOROUGH_S = 0.1, 1.0  # between checks: a gigabyte fills in 0.08 s, listing all processes costs milliseconds
GB = 1 << 30
GRACE_S = 2.0  # between SIGTERM and SIGKILL
CONTAINER = Path("/sys/fs/cgroup")  # the limits of the container around this process


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Hold the most that one process tree and its folder may use, and the reserves of the machine."""

    memory_bytes: int  # of all its processes together
    spare_memory_bytes: int  # the reserve: the tree ends when less is available on the machine
    spare_disk_bytes: int
    folder_bytes: int = 16 * GB  # weights, logs, caches
    folder_files: int = 10_000
    file_bytes: int = 16 * GB
    processes: int = 256
    threads: int = 2048  # half of what the user's limit leaves a run: another worker's run counts toward that, too


def limits_of_machine(share: float = 1.0) -> ResourceLimits:
    """Return the limits of a run on this machine, or of one of several runs that divide its memory.

    Runs may use all memory except a tenth (at least 2 GB, at most half of a small machine's memory). A quarter of that
    tenth is the machine's reserve. The last half gigabyte of the disk is reserved for the night's records.
    """
    total = memory().total
    spare = min(max(2 * GB, total // 10), total // 2)
    return ResourceLimits(int(share * (total - spare)), spare // 4, GB // 2)


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Hold the memory of the machine, or of the container, in bytes."""

    total: int
    available: int


def memory(container: Path = CONTAINER) -> MachineMemory:
    """Return the machine's memory, or that of the container around this process if it has less."""
    machine = psutil.virtual_memory()
    with suppress(OSError, ValueError):  # no control groups of version 2, or a limit of "max"
        limit = int((container / "memory.max").read_text())
        if limit < machine.total:
            stat = dict(line.split() for line in (container / "memory.stat").read_text().splitlines())
            # pages of files, such as the corpus's, count as used, but are dropped when memory is needed
            droppable = int(stat["active_file"]) + int(stat["inactive_file"])
            left = limit - int((container / "memory.current").read_text()) + droppable
            return MachineMemory(limit, min(machine.available, left))
    return MachineMemory(machine.total, machine.available)


@dataclass(frozen=True, slots=True)
class Excess:
    """Name a limit that was exceeded, in words for the ledger."""

    words: str
    is_shortage: bool = False  # the machine's memory or disk ran out, by this tree or by other programs


@dataclass(frozen=True, slots=True)
class Order:
    """Tell a keeper how to keep its command."""

    harness: int  # process id: when this process is gone, the command is ended
    limits: ResourceLimits | None  # None: none are enforced
    cores: tuple[int, ...]  # that the command is pinned to; empty: it is not pinned


@dataclass(frozen=True, slots=True)
class Report:
    """Hold the keeper's facts about a tree of processes that has ended; all None if the keeper itself was killed."""

    exit_code: int | None = None  # of the command; -n after signal n
    over: Excess | None = None
    peak_bytes: int | None = None  # the most memory filled at one time; None if it was not watched


class Watch:
    """Check repeatedly whether a tree of processes and its folder stay within their limits."""

    def __init__(self, limits: ResourceLimits, folder: Path, tree: Callable[[], list[psutil.Process]]) -> None:
        self.peak_bytes = 0  # the most memory filled at one time
        self._limits = limits
        self._folder = folder
        self._tree = tree
        self._processes: list[psutil.Process] = []
        self._quick_s = self._thorough_s = 0.0
        self._shared_bytes = 0  # shared pages that the sum over processes counts again, as last measured

    def exceeded(self) -> Excess | None:
        """Return the first limit that is exceeded, else None; cheap enough for a call every few milliseconds."""
        # at each call: another run's files may soon be gone again
        over, now_s = self.disk(), time.monotonic()
        if over is not None or now_s - self._quick_s < QUICK_S:
            return over
        self._quick_s = now_s
        if now_s - self._thorough_s >= THOROUGH_S:
            self._thorough_s, self._shared_bytes, self._processes = now_s, 0, self._tree()
            usage = folder_usage(self._folder, self._limits.folder_bytes, self._limits.folder_files)
            over = self._crowd() or (Excess(f"its folder holds {usage}") if usage else None)
        return over or self._memory()

    def disk(self) -> Excess | None:
        """Return an excess if the disk's reserve is used up."""
        with suppress(FileNotFoundError):  # unboxed, a script can remove the folder it works in
            spare, least = shutil.disk_usage(self._folder).free, self._limits.spare_disk_bytes
            if spare < least:
                left = f"{spare / GB:.2f} GB are left, {least / GB:.2f} GB are the night's reserve"
                return Excess(f"disk full: {left}", is_shortage=True)
        return None

    def _crowd(self) -> Excess | None:
        processes, threads = len(self._processes), sum(map(threads_of, self._processes))
        allowed = (("processes", processes, self._limits.processes), ("threads", threads, self._limits.threads))
        beyond = (f"too many {name}: {count}, {most} are allowed" for name, count, most in allowed if count > most)
        return next(map(Excess, beyond), None)

    def _memory(self) -> Excess | None:
        spare, least = memory().available, self._limits.spare_memory_bytes
        used, most = self._used_bytes(), self._limits.memory_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if used > most:
            return Excess(f"out of memory: it used {used / GB:.1f} GB, {most / GB:.1f} GB are allowed")
        if spare < least:
            left = f"the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
            return Excess(f"out of memory: this run used {used / GB:.2f} GB, {left}", is_shortage=True)
        return None

    def _used_bytes(self) -> int:
        """Return the memory of the whole tree: the sum over its processes, with shared pages once."""
        summed = sum(map(footprint_bytes, self._processes))
        if summed - self._shared_bytes > self._limits.memory_bytes:  # only then: finding shared pages is slow
            self._shared_bytes = summed - sum(map(shared_out_bytes, self._processes))
        return summed - self._shared_bytes


def footprint_bytes(process: psutil.Process) -> int:
    """Return the memory that this process fills in bytes; 0 if it has just ended.

    Shared pages count in full. Pages of files, such as the corpus, do not count: the kernel can drop them.
    """
    with suppress(OSError, psutil.Error):
        if sys.platform == "darwin":  # unverified on a Mac
            return int(process.memory_full_info().uss)
        status = Path(f"/proc/{process.pid}/status").read_bytes()
        return 1024 * sum(map(int, re.findall(rb"(?m)^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB", status)))
    return 0


def threads_of(process: psutil.Process) -> int:
    """Return the number of its threads; 0 if it has just ended."""
    with suppress(psutil.Error):
        return int(process.num_threads())
    return 0


def shared_out_bytes(process: psutil.Process) -> int:
    """Return its footprint with a page that n processes share counted as 1/n; slow for large processes."""
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes()
    except OSError:  # not Linux, or closed to us
        return footprint_bytes(process)
    return 1024 * sum(map(int, re.findall(rb"(?m)^(?:Pss_Anon|Pss_Shmem|SwapPss):\s*(\d+) kB", rollup)))


def folder_usage(folder: Path, most_bytes: int, most_files: int) -> str | None:
    """Return in words which limit a folder exceeds, else None; stop reading at the first excess."""
    used_bytes = files = 0
    waiting, deepest = [str(folder)], str(folder).count(os.sep) + MOST_DEPTH
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        if entry.path.count(os.sep) > deepest:  # long paths are slow to follow
                            return f"folders more than the {MOST_DEPTH} deep that are allowed"
                    with suppress(FileNotFoundError):
                        used_bytes += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if used_bytes > most_bytes:
                        return f"more than the {most_bytes / GB:.1f} GB that are allowed"
                    if files > most_files:
                        return f"more than the {most_files:,} files that are allowed"
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile, or replaced by a file
        except OSError as error:  # closed by the script, or nested deeper than the longest possible path
            return f"a part that cannot be measured ({error.strerror})"
    return None
