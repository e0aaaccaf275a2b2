"""What one process tree may use of the machine, and a watch that says when it uses more.

The kernel enforces what it can (agent/cgroup.py, resource limits); the watch is there for what it cannot: memory on a
Mac, the size of a folder, and the machine's own reserves, which nothing that runs at night may use up.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

QUICK_S, THOROUGH_S = 0.1, 1.0  # a gigabyte is filled in 0.08 s; finding every process costs milliseconds
GB = 1 << 30


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
    """All memory but a tenth, which is 1 GB at least; the disk's last half gigabyte is for the night's own records."""
    total = psutil.virtual_memory().total
    spare = max(GB, total // 20)
    return Caps(
        memory_bytes=max(total - 2 * spare, total // 2), spare_memory_bytes=spare // 2, spare_disk_bytes=GB // 2
    )


class Watch:
    """Asked again and again whether a tree of processes and its folder are within their caps."""

    def __init__(self, caps: Caps, folder: Path, tree: Callable[[], list[psutil.Process]]) -> None:
        self._caps = caps
        self._folder = folder
        self._tree = tree
        self._known: list[psutil.Process] = []
        self._quick_s = self._thorough_s = 0.0

    def exceeded(self) -> str | None:
        """None, or what is over, in words for the ledger; cheap enough to be asked every few milliseconds."""
        now_s = time.monotonic()
        if now_s - self._quick_s < QUICK_S:
            return None
        self._quick_s = now_s
        if now_s - self._thorough_s < THOROUGH_S:
            return self._memory() or self._disk()
        self._thorough_s = now_s
        self._known = self._tree()
        return self._processes() or self._memory() or self._disk() or self._usage()

    def _processes(self) -> str | None:
        count, most = len(self._known), self._caps.processes
        return f"too many processes: {count}, {most} are allowed" if count > most else None

    def _memory(self) -> str | None:
        spare, least = psutil.virtual_memory().available, self._caps.spare_memory_bytes
        if spare < least:
            return f"out of memory: the machine had {spare / GB:.2f} GB left, {least / GB:.2f} GB are its reserve"
        used, most = sum(footprint_bytes(process) for process in self._known), self._caps.memory_bytes
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
        caps = self._caps
        used = folder_usage(self._folder, caps.folder_bytes, caps.folder_files)
        return f"its folder holds {used}" if used else None


def footprint_bytes(process: psutil.Process) -> int:
    """Memory that this process alone fills; 0 for one that has just ended."""
    try:
        if sys.platform == "darwin":  # unverified on a Mac
            return int(process.memory_full_info().uss)
        memory = process.memory_info()
        return int(memory.rss - memory.shared)  # pages of mapped files, such as the corpus, can be dropped
    except psutil.Error:
        return 0


def folder_usage(folder: Path, most_bytes: int, most_files: int) -> str | None:
    """What is too much in a folder, or None; looks no further than it has to."""
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
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError as error:  # deeper than a path can be long, or closed to its own owner
            return f"a part that cannot be measured ({error.strerror})"
    return None


def _blocks_bytes(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
