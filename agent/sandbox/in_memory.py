"""Hold all files that boxes show in memory, so that no process in a box waits for the disk.

The kernel counts how often a process waits for the disk, in many places. A file that an earlier box has read costs no
wait: by reading a file or not, one box could tell a later one a bit. Where every file is in memory before each box
starts, and no call inside puts one out (seccomp.py), files tell nothing.

The harness maps these files once, which holds their names and sizes in memory as well. Before each box it has the
kernel go through their pages and read again what other programs have put out. Pages that are there are not copied.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock

from agent.errors import MachineError

GB = 1 << 30
POPULATE_READ = 22  # advice about memory: bring all of it in, and wait for that; since Linux 5.14
NO_ACCESS, FIXED, NO_RESERVE, FAILED = 0, 0x10, 0x4000, ctypes.c_void_p(-1).value
MOST_FILES = 60_000  # the kernel allows a process 65,530 mappings
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
LIBC.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
LIBC.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t


def available() -> bool:
    """Return whether this kernel can go through the pages of mapped files."""
    return sys.platform == "linux" and bool(LIBC.madvise(None, 0, POPULATE_READ) == 0)


class Held:
    """Hold files in memory, mapped one after another in one part of this process's addresses."""

    def __init__(self) -> None:
        self._lock = Lock()  # the workers of this process share it
        self._files: list[tuple[str, int]] = []
        self._unmapped: list[str] = []  # they are empty, or closed to this user
        self._start, self._room_bytes, self._used_bytes = 0, 0, 0

    def bring_in(self, places: Iterable[Path], without: Collection[Path] = ()) -> None:
        """Have all files and folders in these places in memory, except some folders.

        What is closed to this user is closed to its boxes as well.
        """
        with self._lock:
            files = list(islice(_files_in(places, {str(folder) for folder in without}), MOST_FILES))
            if files != self._files or not self._all_read():  # a package was installed, or a file became shorter
                self._map(files)
                self._all_read()

    def _all_read(self) -> bool:
        for path in self._unmapped:
            _size(path)
        return bool(LIBC.madvise(self._start, self._used_bytes, POPULATE_READ) == 0)

    def _map(self, files: list[tuple[str, int]]) -> None:
        if self._room_bytes:
            LIBC.munmap(self._start, self._room_bytes)
        sizes = {path: _size(path) for path, _ in files}
        self._room_bytes = sum(map(_in_pages, sizes.values())) or mmap.PAGESIZE
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        self._start = LIBC.mmap(None, self._room_bytes, NO_ACCESS, kind, -1, 0)
        if self._start == FAILED:  # addresses alone, which take no memory
            self._room_bytes = 0
            raise MachineError(
                f"the files that a sandbox shows ({sum(sizes.values()) / GB:.1f} GB) cannot be mapped, as this process "
                f"may not have so many addresses; lift that limit with: ulimit -v unlimited"
            )
        self._files, self._unmapped, self._used_bytes = files, [], 0
        for path, size in sizes.items():
            if size and _mapped(path, size, self._start + self._used_bytes):
                self._used_bytes += _in_pages(size)
            else:
                self._unmapped.append(path)


HELD = Held()


def read(files: Iterable[Path]) -> None:
    """Have other files in memory, which a box shows for the length of one run."""
    for path in files:
        with suppress(OSError, ValueError), path.open("rb") as file:  # one that is empty cannot be mapped
            mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ).close()


def _files_in(places: Iterable[Path], without: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the paths of files and their inodes, which tell whether they are still the same."""
    waiting = list({os.path.realpath(place) for place in places}.difference(without))  # several may be links to one
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        yield entry.path, entry.inode()
                    elif entry.is_symlink():
                        Path(entry.path).readlink()
                    elif entry.is_dir() and entry.path not in without:
                        waiting.append(entry.path)
        except NotADirectoryError:
            with suppress(OSError):
                yield place, Path(place).stat().st_ino
        except OSError:  # closed to this user, or removed meanwhile
            continue


def _mapped(path: str, size: int, at: int) -> bool:
    """Map a file at an address, and return whether that worked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    address = LIBC.mmap(at, size, mmap.PROT_READ, mmap.MAP_SHARED | FIXED, file, 0)
    os.close(file)
    return bool(address == at)


def _size(path: str) -> int:
    with suppress(OSError):
        return Path(path).stat().st_size
    return 0


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
