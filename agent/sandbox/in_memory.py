"""Keep all files that sandboxes show in memory, so that no process in a sandbox waits for the disk.

The kernel counts how often a process waits for the disk, in many places. A file that an earlier sandbox has read costs
no wait: by reading a file or not, one sandbox could tell a later one a bit. Where every file is in memory before each
sandbox starts, and no call inside puts one out (seccomp.py), files tell nothing.

The kernel also remembers of each page whether it was used once or more often, and shows that to whoever maps the page
(/proc/self/numa_maps, /proc/self/smaps). It remembers no more than a few uses: a page that has had these stays as it is
when a sandbox reads it.

The harness maps these files once, which keeps their names and sizes in memory as well. Before each sandbox it asks the
kernel whether it has put anything out of memory since or forgotten a use, and each folder whether it has changed. If
so, it lists the folders again and has the kernel go through all pages; those that are there are not copied.
"""

import ctypes
import mmap
import os
import re
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from agent.errors import MachineError

GB = 1 << 30
LEAVE = 4  # advice about memory: end its use; a shared file's pages stay in memory
POPULATE_READ = 22  # advice about memory: bring all of it in, and wait for that; since Linux 5.14
NO_ACCESS, FIXED, NO_RESERVE, FAILED = 0, 0x10, 0x4000, ctypes.c_void_p(-1).value
OTHER_MAPPINGS = 5_000  # what this process may map besides: the kernel bounds the number of its mappings
KERNEL_COUNTS, MOST_MAPPINGS = Path("/proc/vmstat"), Path("/proc/sys/vm/max_map_count")
# The kernel counts here the pages of which it has forgotten that they were used, which it does before it puts one out;
# and the pages, names and inodes that it, or a user through it, may have put out of memory.
FORGOTTEN = ("pgdeactivate", "drop_pagecache")
COUNTED = (*FORGOTTEN, "pgsteal_file", "slabs_scanned", "drop_slab")
PUT_OUT = re.compile(rf"(?m)^({'|'.join(COUNTED)}) (\d+)$")
USES = 4  # the kernel remembers three of each page
SURE_NS = 1_000_000_000  # ns after a folder's change, the next one certainly has another time
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
LIBC.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
LIBC.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t


def available() -> bool:
    """Return whether this kernel can go through the pages of mapped files."""
    return sys.platform == "linux" and bool(LIBC.madvise(None, 0, POPULATE_READ) == 0)


class Held:
    """Keep files in memory, mapped one after another in one part of this process's addresses."""

    def __init__(self) -> None:
        self._lock = Lock()  # the workers of this process share it
        self._asked: tuple[frozenset[str], frozenset[str]] | None = None
        self._put_out: dict[str, str] = {}
        self._folders: dict[str, int | None] = {}  # folder → the time of its last change; None: too recent to be sure
        self._files: dict[str, int] = {}  # file → its inode, which tells whether it is still the same file
        self._unmapped: list[str] = []  # files that are empty, closed to this user, or beyond the most mappings
        self._start, self._room_bytes, self._used_bytes = 0, 0, 0

    def bring_in(self, places: Iterable[Path], without: Collection[Path] = ()) -> None:
        """Have all files and folders in these places in memory, except some folders.

        What is closed to this user is closed to its sandboxes as well.
        """
        # several of these places may be links to one
        asked = frozenset(map(os.path.realpath, places)), frozenset(map(str, without))
        with self._lock:
            put_out = put_out_so_far()
            if put_out and (asked, put_out) == (self._asked, self._put_out) and self._unchanged():
                return
            folders, files = listed(*asked)
            is_forgotten = any(put_out.get(count) != self._put_out.get(count) for count in FORGOTTEN)
            if files != self._files or not self._all_read():  # a package was installed, or a file became shorter
                self._map(files)
                is_forgotten = True
            if is_forgotten:
                self._use()
            self._asked, self._put_out, self._folders = asked, put_out, folders

    def _unchanged(self) -> bool:
        return all(_changed_ns(folder) == changed_ns for folder, changed_ns in self._folders.items())

    def _all_read(self) -> bool:
        read(self._unmapped)
        return bool(LIBC.madvise(self._start, self._used_bytes, POPULATE_READ) == 0)

    def _use(self) -> None:
        """Use each page as often as the kernel remembers."""
        for _ in range(USES):
            self._all_read()
            LIBC.madvise(self._start, self._used_bytes, LEAVE)
        self._all_read()

    def _map(self, files: dict[str, int]) -> None:
        if self._room_bytes:
            LIBC.munmap(self._start, self._room_bytes)
        sizes = _sizes(files)
        self._room_bytes = sum(map(_in_pages, sizes.values())) or mmap.PAGESIZE
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        self._start = LIBC.mmap(None, self._room_bytes, NO_ACCESS, kind, -1, 0)
        if self._start == FAILED:  # the call asked for addresses alone, which take no memory
            self._room_bytes = 0
            raise MachineError(
                f"the files that a sandbox shows ({sum(sizes.values()) / GB:.1f} GB) cannot be mapped, as this process "
                f"may not have so many addresses; lift that limit with: ulimit -v unlimited"
            )
        self._files, self._unmapped, self._used_bytes = files, [], 0
        most = most_files()
        for number, (path, size) in enumerate(sizes.items()):
            if size and number < most and _mapped(path, size, self._start + self._used_bytes):
                self._used_bytes += _in_pages(size)
            else:
                self._unmapped.append(path)


HELD = Held()


def read(files: Iterable[str | Path]) -> None:
    """Have other files in memory as they are now."""
    for path in files:
        with suppress(OSError, ValueError), open(path, "rb") as file:  # an empty file cannot be mapped
            mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ).close()


def put_out_so_far() -> dict[str, str]:
    """Return what this kernel has counted of what it has put out of memory; nothing if it does not count all of it."""
    try:
        counts = dict(PUT_OUT.findall(KERNEL_COUNTS.read_text(encoding="ascii")))
    except OSError:
        return {}
    return counts if len(counts) == len(COUNTED) else {}


def most_files() -> int:
    """Return how many files this process can map."""
    return int(MOST_MAPPINGS.read_bytes()) - OTHER_MAPPINGS


def listed(places: Iterable[str], without: Collection[str] = ()) -> tuple[dict[str, int | None], dict[str, int]]:
    """Return the folders in these places with the times of their last change, and the files with their inodes.

    A place that is a file stands with the folders as well. What links lead to is read, too.
    """
    folders: dict[str, int | None] = {}
    files: dict[str, int] = {}
    waiting, now_ns = list(set(places).difference(without)), time.time_ns()
    while waiting:
        place = waiting.pop()
        changed_ns = _changed_ns(place)  # its time is read before its entries, so that a change between is noticed
        folders[place] = changed_ns if changed_ns and changed_ns + SURE_NS < now_ns else None
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        files[entry.path] = entry.inode()
                    elif entry.is_symlink():
                        os.readlink(entry.path)
                    elif entry.is_dir() and entry.path not in without:
                        waiting.append(entry.path)
        except NotADirectoryError:
            with suppress(OSError):
                files[place] = os.stat(place).st_ino
        except OSError:  # the folder is closed to this user, or was removed meanwhile
            continue
    return folders, files


def _changed_ns(place: str) -> int | None:
    """Return when a folder's entries or a file were last changed, which no program can set back."""
    try:  # suppress() would take half the time of all folders
        return os.stat(place).st_ctime_ns
    except OSError:
        return None


def _mapped(path: str, size: int, at: int) -> bool:
    """Map a file at an address, and return whether that worked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    address = LIBC.mmap(at, size, mmap.PROT_READ, mmap.MAP_SHARED | FIXED, file, 0)
    os.close(file)
    return bool(address == at)


def _sizes(paths: Iterable[str]) -> dict[str, int]:
    """Return files with their sizes; of several names of one file the first."""
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for path in paths:
        with suppress(OSError):
            facts = os.stat(path)
            found.setdefault((facts.st_dev, facts.st_ino), (path, facts.st_size))
    return dict(found.values())


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
