"""Define how much of the machine one process tree may use, and watch that it stays within that.

The kernel enforces some limits (agent/sandbox/cgroup.py and RLIMIT_*). The watch covers the others: memory on a Mac,
the size of a folder, and the machine's reserves of memory and disk, which no run may use up.
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

CLOSED_S, MOST_DEPTH = 0.5, 64  # of a folder that cannot be read, and of folders in folders
QUICK_S, THOROUGH_S = 0.1, 1.0  # between checks: a gigabyte fills in 0.08 s, listing all processes costs milliseconds
GB = 1 << 30
TREE = Path("/sys/fs/cgroup")
CONTAINER = (  # files with limit, use, and how much of the use is files; by version of the kernel's control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Hold the most that one process tree and its folder may use, and the reserves of the machine."""

    memory_bytes: int  # of all its processes together
    spare_memory_bytes: int  # the reserve: the tree ends when less is available on the machine
    spare_disk_bytes: int
    fair_memory_bytes: int = GB  # a tree that uses at most this is not to blame when the machine runs short
    fair_folder_bytes: int = GB
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
    most = int(share * (total - spare))
    return ResourceLimits(most, spare // 4, GB // 2, fair_memory_bytes=most // 4)


def fair_to(limits: ResourceLimits, usual_bytes: int | None) -> ResourceLimits:
    """Return limits under which a tree that uses at most twice the usual memory is not blamed for a shortage.

    If the usual is unknown (None), only a tree beyond its own limit is blamed.
    """
    fair = limits.memory_bytes if usual_bytes is None else max(limits.fair_memory_bytes, 2 * usual_bytes)
    return replace(limits, fair_memory_bytes=fair)


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Hold the memory of the machine, or of the container, in bytes."""

    total: int
    available: int


def memory(tree: Path = TREE) -> MachineMemory:
    """Return the machine's memory, or that of the container around this process if it has less."""
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
    """Return the bytes of file pages, such as the corpus's: counted as used, but dropped when memory is needed."""
    sizes = dict(line.split() for line in stat.splitlines())
    return sum(int(sizes.get(f"total_{name}", sizes.get(name, 0))) for name in ("active_file", "inactive_file"))


@dataclass(frozen=True, slots=True)
class Excess:
    """Say which limit was exceeded, in words for the ledger, and whether the tree itself is to blame."""

    words: str
    own: bool = True  # False: other programs used up a reserve of the machine


@dataclass(frozen=True, slots=True)
class Report:
    """Hold the keeper's facts about a tree of processes that has ended; all None if the keeper itself was killed."""

    exceeded: str | None = None  # the exceeded limit, in words
    own: bool = True  # False: other programs used up a reserve of the machine
    cpu_s: float | None = None  # processor time of the whole tree, keeper included
    peak_bytes: int | None = None  # the most memory filled at one time; None if it was not watched


class Watch:
    """Check repeatedly whether a tree of processes and its folder stay within their limits.

    filled() returns the memory of the tree in bytes if the kernel counts it, else None; then its processes are asked.
    """

    def __init__(
        self,
        limits: ResourceLimits,
        folder: Path,
        tree: Callable[[], list[psutil.Process]],
        filled: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.peak_bytes = 0  # the most memory filled at one time
        self._limits = limits
        self._folder = folder
        self._tree = tree
        self._filled = filled
        self._known: list[psutil.Process] = []
        self._disk_files = disk_files(folder)  # when the folder was last measured
        self._closed_s: float | None = None  # since when a part of the folder cannot be read; None: all of it can
        self._quick_s = self._thorough_s = 0.0
        self._shared_bytes = 0  # shared pages that the sum over processes counts again, as last measured
        self._spare_disk_bytes: int | None = None  # free bytes of a full disk; None: all files of the tree are known

    def exceeded(self) -> Excess | None:
        """Return the first limit that is exceeded, else None; cheap enough for a call every few milliseconds."""
        full, now_s = self.disk(), time.monotonic()  # at each call: another run's files may soon be gone again
        # a script makes 100,000 files a second, and a folder of them is slow to remove
        are_many = disk_files(self._folder) - self._disk_files > self._limits.folder_files
        if full is not None or not (are_many or now_s - self._quick_s >= QUICK_S):
            return full
        self._quick_s = now_s
        if not (are_many or now_s - self._thorough_s >= THOROUGH_S):
            return self._memory()
        self._thorough_s, self._shared_bytes = now_s, 0
        self._known = self._tree()
        return self._processes() or self._memory() or self._usage()

    def _processes(self) -> Excess | None:
        count, most = len(self._known), self._limits.processes
        if count > most:
            return Excess(f"too many processes: {count}, {most} are allowed")
        threads, most = sum(map(threads_of, self._known)), self._limits.threads
        return Excess(f"too many threads: {threads}, {most} are allowed") if threads > most else None

    def _memory(self) -> Excess | None:
        spare, least = memory().available, self._limits.spare_memory_bytes
        used, most = self._used_bytes(), self._limits.memory_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if spare < least:
            left = f"the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
            own = used > max(least - spare, self._limits.fair_memory_bytes)
            return Excess(f"out of memory: this run used {used / GB:.2f} GB, {left}", own)
        if used > most:
            return Excess(f"out of memory: it used {used / GB:.1f} GB, {most / GB:.1f} GB are allowed")
        return None

    def _used_bytes(self) -> int:
        """Return the memory of the whole tree: its control group's count, else the sum with shared pages once."""
        counted = self._filled()
        if counted is not None:
            return counted
        summed = sum(footprint_bytes(process) for process in self._known)
        if summed - self._shared_bytes > self._limits.memory_bytes:  # only then: finding shared pages is slow
            self._shared_bytes = summed - sum(shared_out_bytes(process) for process in self._known)
        return summed - self._shared_bytes

    def disk(self) -> Excess | None:
        """Return an excess if the disk's reserve is used up; blame the tree if its files hold the missing bytes."""
        try:
            spare, least = shutil.disk_usage(self._folder).free, self._limits.spare_disk_bytes
            device = self._folder.stat().st_dev
        except FileNotFoundError:  # unboxed, a script can remove the folder it works in
            return None
        if spare >= least:
            return None
        nameless = nameless_bytes(self._tree(), device)
        self._spare_disk_bytes = spare if nameless is None else None
        fair, own = max(least - spare, self._limits.fair_folder_bytes) - (nameless or 0), True
        with suppress(PermissionError):  # a script that closes its folder is blamed
            own = fair < 0 or folder_usage(self._folder, fair, self._limits.folder_files) is not None
        left = f"{spare / GB:.2f} GB are left, {least / GB:.2f} GB are the night's reserve"
        return Excess(f"disk full: {left}", own)

    def once_ended(self, over: Excess) -> Excess:
        """Return the excess, blamed on the tree if the missing bytes are free after its end.

        This is asked only where its deleted files could not be seen: another run may have ended at the same time.
        """
        before = self._spare_disk_bytes
        if over.own or before is None:
            return over
        with suppress(FileNotFoundError):
            fair = max(self._limits.spare_disk_bytes - before, self._limits.fair_folder_bytes)
            return replace(over, own=shutil.disk_usage(self._folder).free - before > fair)
        return over

    def _usage(self) -> Excess | None:
        limits, now_s = self._limits, time.monotonic()
        self._disk_files = disk_files(self._folder)
        try:
            used = folder_usage(self._folder, limits.folder_bytes, limits.folder_files)
            self._closed_s = None
        except PermissionError as error:  # a folder that is being made or removed may be closed for a moment
            self._closed_s = now_s if self._closed_s is None else self._closed_s
            used = _unmeasured(error) if now_s - self._closed_s >= CLOSED_S else None
        return Excess(f"its folder holds {used}") if used else None


def footprint_bytes(process: psutil.Process) -> int:
    """Return the memory that this process fills in bytes; 0 if it has just ended.

    Shared pages count in full. Pages of files, such as the corpus, do not count: the kernel can drop them.
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


def nameless_bytes(processes: list[psutil.Process], device: int) -> int | None:
    """Return the bytes of deleted files on a disk that processes hold open; None if the system does not tell."""
    held: dict[int, int] = {}  # by inode
    for process in processes:
        try:
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):  # closed meanwhile
                    found = entry.stat()
                    if found.st_dev == device and found.st_nlink == 0:
                        held[found.st_ino] = 512 * found.st_blocks
        except (FileNotFoundError, ProcessLookupError):
            if sys.platform != "linux":
                return None
        except PermissionError:
            return None
    return sum(held.values())


def disk_files(folder: Path) -> int:
    """Return the number of files on the folder's disk; 0 if its file system does not count them."""
    with suppress(FileNotFoundError):
        disk = os.statvfs(folder)
        return disk.f_files - disk.f_ffree
    return 0


def folder_usage(folder: Path, most_bytes: int, most_files: int) -> str | None:
    """Return in words which limit a folder exceeds, else None; stop reading at the first excess.

    Raise PermissionError if a part of it cannot be read.
    """
    used = files = 0
    waiting, deepest = [str(folder)], str(folder).count(os.sep) + MOST_DEPTH
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    used += _blocks_bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        if entry.path.count(os.sep) > deepest:  # long paths are slow to follow
                            return f"folders more than the {MOST_DEPTH} deep that are allowed"
                    if used > most_bytes:
                        return f"more than the {most_bytes / GB:.1f} GB that are allowed"
                    if files > most_files:
                        return f"more than the {most_files:,} files that are allowed"
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed meanwhile, or replaced by a file
        except PermissionError:
            raise  # its owner may not read it
        except OSError as error:  # nested deeper than the longest possible path
            return _unmeasured(error)
    return None


def _unmeasured(error: OSError) -> str:
    return f"a part that cannot be measured ({error.strerror})"


def _blocks_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
