"""What one process tree may use of the machine, and a watch that says when it uses more.

The kernel enforces what it can (agent/sandbox/cgroup.py, resource limits); the watch is there for what it cannot:
memory on a Mac, the size of a folder, and the machine's own reserves, which nothing that runs at night may use up.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

QUICK_S, THOROUGH_S = 0.1, 1.0  # a gigabyte is filled in 0.08 s; finding every process costs milliseconds
GB = 1 << 30
TREE = Path("/sys/fs/cgroup")
CONTAINER = (  # limit, use, and what tells how much of the use is files, by version of the kernel's control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


@dataclass(frozen=True, slots=True)
class Caps:
    memory_bytes: int  # of all its processes together
    spare_memory_bytes: int  # left to the machine, whoever uses the rest
    spare_disk_bytes: int
    fair_memory_bytes: int = GB  # one that takes no more than this is not to blame where the machine runs short
    fair_folder_bytes: int = GB
    folder_bytes: int = 16 * GB  # weights, logs, caches
    folder_files: int = 10_000
    file_bytes: int = 16 * GB
    processes: int = 256


def caps_of_machine() -> Caps:
    """A run gets all memory but a tenth, which is 2 GB at least and half of a small machine's at most.

    A quarter of that is the reserve, which nobody may use up. The disk's last half gigabyte is for the night's records.
    """
    total = memory().total
    spare = min(max(2 * GB, total // 10), total // 2)
    return Caps(total - spare, spare // 4, GB // 2, fair_memory_bytes=(total - spare) // 4)


def fair_to(caps: Caps, usual_bytes: int | None) -> Caps:
    """Caps that blame nothing for a machine short of memory that takes at most twice what is usual.

    Where nothing is known to be usual, only what goes beyond its own cap is to blame.
    """
    fair = caps.memory_bytes if usual_bytes is None else max(caps.fair_memory_bytes, 2 * usual_bytes)
    return replace(caps, fair_memory_bytes=fair)


@dataclass(frozen=True, slots=True)
class MachineMemory:
    total: int
    available: int


def memory(tree: Path = TREE) -> MachineMemory:
    """The machine's, or that of the container this runs in, where it has less."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    for limit, use, stat in CONTAINER:
        with suppress(OSError, ValueError):  # another version, or a limit of "max"
            most = int((tree / limit).read_text())
            if most < machine.total:
                left = most - int((tree / use).read_text()) + _droppable_bytes((tree / stat).read_text())
                total, available = most, min(available, left)
    return MachineMemory(total, available)


def _droppable_bytes(stat: str) -> int:
    """Pages of files, such as the corpus, count as used until somebody else needs the memory."""
    sizes = dict(line.split() for line in stat.splitlines())
    return sum(int(sizes.get(f"total_{name}", sizes.get(name, 0))) for name in ("active_file", "inactive_file"))


@dataclass(frozen=True, slots=True)
class Excess:
    """A cap that was exceeded, in words for the ledger."""

    words: str
    own: bool = True  # False: a reserve of the machine's, which others used up


@dataclass(frozen=True, slots=True)
class Report:
    """What the keeper tells the harness when a tree of processes has ended; nothing where it was killed itself."""

    exceeded: str | None = None  # which cap, in words
    own: bool = True  # False: a reserve of the machine's, which others used up
    cpu_s: float | None = None  # processor time of the whole tree, the keeper included
    peak_bytes: int | None = None  # the most memory that was filled at a time; None where it was not watched


class Watch:
    """Asked again and again whether a tree of processes and its folder are within their caps.

    filled tells how much memory the tree fills where the kernel counts it; else its processes are asked.
    """

    def __init__(
        self,
        caps: Caps,
        folder: Path,
        tree: Callable[[], list[psutil.Process]],
        filled: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.peak_bytes = 0  # the most memory that was filled at a time
        self._caps = caps
        self._folder = folder
        self._tree = tree
        self._filled = filled
        self._known: list[psutil.Process] = []
        self._closed = False  # was a part of the folder, when it was last measured?
        self._quick_s = self._thorough_s = 0.0
        self._shared_bytes = 0  # counted more than once, when that was last looked at
        self._spare_disk_bytes: int | None = None  # when the disk's reserve was used up

    def exceeded(self) -> Excess | None:
        """None, or what is over; cheap enough to be asked every few milliseconds."""
        now_s = time.monotonic()
        if now_s - self._quick_s < QUICK_S:
            return None
        self._quick_s = now_s
        if now_s - self._thorough_s < THOROUGH_S:
            return self._memory() or self.disk()
        self._thorough_s, self._shared_bytes = now_s, 0
        self._known = self._tree()
        return self._processes() or self._memory() or self.disk() or self._usage()

    def _processes(self) -> Excess | None:
        count, most = len(self._known), self._caps.processes
        return Excess(f"too many processes: {count}, {most} are allowed") if count > most else None

    def _memory(self) -> Excess | None:
        spare, least = memory().available, self._caps.spare_memory_bytes
        used, most = self._used_bytes(), self._caps.memory_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if spare < least:
            left = f"the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
            own = used > max(least - spare, self._caps.fair_memory_bytes)
            return Excess(f"out of memory: this run used {used / GB:.2f} GB, {left}", own)
        if used > most:
            return Excess(f"out of memory: it used {used / GB:.1f} GB, {most / GB:.1f} GB are allowed")
        return None

    def _used_bytes(self) -> int:
        """Of the whole tree: as its control group counts, else by its processes, whose shared pages count once."""
        counted = self._filled()
        if counted is not None:
            return counted
        summed = sum(footprint_bytes(process) for process in self._known)
        if summed - self._shared_bytes > self._caps.memory_bytes:  # it is slow to ask whose pages are whose
            self._shared_bytes = summed - sum(shared_out_bytes(process) for process in self._known)
        return summed - self._shared_bytes

    def disk(self) -> Excess | None:
        """Whether the disk's reserve is used up; of this tree's own doing where its folder holds what is missing."""
        try:
            spare, least = shutil.disk_usage(self._folder).free, self._caps.spare_disk_bytes
        except FileNotFoundError:  # unboxed, a script can remove the folder it works in
            return None
        if spare >= least:
            return None
        self._spare_disk_bytes, own = spare, True
        with suppress(PermissionError):  # one that closes its folder has something in there
            fair = max(least - spare, self._caps.fair_folder_bytes)
            own = folder_usage(self._folder, fair, self._caps.folder_files) is not None
        left = f"{spare / GB:.2f} GB are left, {least / GB:.2f} GB are the night's reserve"
        return Excess(f"disk full: {left}", own)

    def once_ended(self, over: Excess) -> Excess:
        """The same, of this tree's own doing where its end alone sets so much free: files without a name were its."""
        before = self._spare_disk_bytes
        if over.own or before is None:
            return over
        with suppress(FileNotFoundError):
            fair = max(self._caps.spare_disk_bytes - before, self._caps.fair_folder_bytes)
            return replace(over, own=shutil.disk_usage(self._folder).free - before > fair)
        return over

    def _usage(self) -> Excess | None:
        caps, used = self._caps, None
        before, self._closed = self._closed, False
        try:
            used = folder_usage(self._folder, caps.folder_bytes, caps.folder_files)
        except PermissionError as error:
            self._closed = True
            if before:  # for a moment, a folder that is being made or removed may be closed, too
                used = _unmeasured(error)
        return Excess(f"its folder holds {used}") if used else None


def footprint_bytes(process: psutil.Process) -> int:
    """Return the memory that this process fills; 0 for one that has just ended.

    Pages that it shares count whole, but those of files, such as the corpus, do not: they can be dropped.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_bytes()
            if sizes := re.findall(rb"(?m)^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB", status):
                return 1024 * sum(map(int, sizes))
    try:
        if sys.platform == "darwin":  # unverified on a Mac
            return int(process.memory_full_info().uss)
        taken = process.memory_info()
        return int(taken.rss - taken.shared)
    except psutil.Error:
        return 0


def shared_out_bytes(process: psutil.Process) -> int:
    """Return its footprint with a page that n processes share counted as 1/n of one; slow for large processes."""
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_bytes()
    except OSError:  # not Linux, or closed to us
        return footprint_bytes(process)
    return 1024 * sum(map(int, re.findall(rb"(?m)^(?:Pss_Anon|Pss_Shmem|SwapPss):\s*(\d+) kB", rollup)))


def folder_usage(folder: Path, most_bytes: int, most_files: int) -> str | None:
    """What is too much in a folder, or None; looks no further than it has to. PermissionError for a closed part."""
    used = files = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    used += _blocks_bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if used > most_bytes:
                        return f"more than the {most_bytes / GB:.1f} GB that are allowed"
                    if files > most_files:
                        return f"more than the {most_files:,} files that are allowed"
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone meanwhile, or a file now
        except PermissionError:
            raise  # closed to its own owner
        except OSError as error:  # deeper than a path can be long
            return _unmeasured(error)
    return None


def _unmeasured(error: OSError) -> str:
    return f"a part that cannot be measured ({error.strerror})"


def _blocks_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
