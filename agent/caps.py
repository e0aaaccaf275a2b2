"""What one process tree may use of the machine, and a watch that says when it uses more.

The kernel enforces what it can (agent/cgroup.py, resource limits); the watch is there for what it cannot: memory on a
Mac, the size of a folder, and the machine's own reserves, which nothing that runs at night may use up.
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
    return Caps(memory_bytes=total - spare, spare_memory_bytes=spare // 4, spare_disk_bytes=GB // 2)


@dataclass(frozen=True, slots=True)
class Memory:
    total: int
    available: int


def memory(tree: Path = TREE) -> Memory:
    """The machine's, or that of the container this runs in, where it has less."""
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    for limit, use, stat in CONTAINER:
        with suppress(OSError, ValueError):  # another version, or a limit of "max"
            most = int((tree / limit).read_text())
            if most < machine.total:
                left = most - int((tree / use).read_text()) + _droppable_bytes((tree / stat).read_text())
                total, available = most, min(available, left)
    return Memory(total, available)


def _droppable_bytes(stat: str) -> int:
    """Pages of files, such as the corpus, count as used until somebody else needs the memory."""
    sizes = dict(line.split() for line in stat.splitlines())
    return sum(int(sizes.get(f"total_{name}", sizes.get(name, 0))) for name in ("active_file", "inactive_file"))


class Watch:
    """Asked again and again whether a tree of processes and its folder are within their caps."""

    def __init__(self, caps: Caps, folder: Path, tree: Callable[[], list[psutil.Process]]) -> None:
        self._caps = caps
        self._folder = folder
        self._tree = tree
        self._known: list[psutil.Process] = []
        self._closed = False  # was a part of the folder, when it was last measured?
        self._quick_s = self._thorough_s = 0.0
        self._shared_bytes = 0  # counted more than once, when that was last looked at

    def exceeded(self) -> str | None:
        """None, or what is over, in words for the ledger; cheap enough to be asked every few milliseconds."""
        now_s = time.monotonic()
        if now_s - self._quick_s < QUICK_S:
            return None
        self._quick_s = now_s
        if now_s - self._thorough_s < THOROUGH_S:
            return self._memory() or self._disk()
        self._thorough_s, self._shared_bytes = now_s, 0
        self._known = self._tree()
        return self._processes() or self._memory() or self._disk() or self._usage()

    def _processes(self) -> str | None:
        count, most = len(self._known), self._caps.processes
        return f"too many processes: {count}, {most} are allowed" if count > most else None

    def _memory(self) -> str | None:
        spare, least = memory().available, self._caps.spare_memory_bytes
        if spare < least:
            return f"out of memory: the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
        counted, most = sum(footprint_bytes(process) for process in self._known), self._caps.memory_bytes
        if counted - self._shared_bytes > most:  # it is slow to ask whose pages are whose
            self._shared_bytes = counted - sum(shared_out_bytes(process) for process in self._known)
        used = counted - self._shared_bytes
        return f"out of memory: it used {used / GB:.1f} GB, {most / GB:.1f} GB are allowed" if used > most else None

    def _disk(self) -> str | None:
        try:
            spare, least = shutil.disk_usage(self._folder).free, self._caps.spare_disk_bytes
        except FileNotFoundError:  # unboxed, a script can remove the folder it works in
            return None
        if spare < least:
            return f"disk full: {spare / GB:.2f} GB are left, {least / GB:.2f} GB are the night's reserve"
        return None

    def _usage(self) -> str | None:
        caps, used = self._caps, None
        before, self._closed = self._closed, False
        try:
            used = folder_usage(self._folder, caps.folder_bytes, caps.folder_files)
        except PermissionError as error:
            self._closed = True
            if before:  # for a moment, a folder that is being made or removed may be closed, too
                used = _unmeasured(error)
        return f"its folder holds {used}" if used else None


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
