"""Make folders that are gone afterwards, write files whole, read those of a script safely, and know a full disk.

Every temporary folder of the harness is made here. Its process holds a lock on it, which the kernel releases when the
process ends. So the folders of killed processes are unlocked, and a later process removes them.

A script may leave anything in its folder: links to other places, pipes, folders a thousand deep. So its files are read
as bytes, by open_plain or read_end: from plain files only, never through a link, and only up to a given size.
"""

import errno
import fcntl
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from agent.errors import MachineError, NightError
from agent.invocation import typed

PREFIX, SUFFIX = "nightshift-", ".throwaway"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MIN_FREE_BYTES = 1 << 30  # logs, weights of the kept attempts and git objects of a night, with room to spare
MOMENT_S = 60.0  # s; an older folder without a lock was left by a process that is gone
AT_ONCE = 200  # paths in one command: the longest possible ones still fit


def home_folder() -> Path | None:
    """Return the user's home folder; None for a user that the system does not know, as in some containers."""
    with suppress(RuntimeError):
        return Path.home().resolve()
    return None


@contextmanager
def throwaway_folder(place: Path | None = None) -> Iterator[Path]:
    """Make a folder for the `with` block, and remove it afterwards even if it holds links, pipes or closed folders.

    It is in TMPDIR unless another place is named.
    """
    try:
        place = place or Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise MachineError(f"no temporary file can be written ({error}); free some space, or set TMPDIR") from error
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX, dir=place)).resolve()
    lock = os.open(folder, FOLDER)
    with suppress(OSError):  # a network disk may have no locks; then sweep() cannot lock it either
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(lock)


@cache  # once for each process
def sweep(place: Path) -> None:
    """Remove this user's throwaway folders whose makers are gone; one that was just made may not be locked yet."""
    for folder in place.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError):  # a link, in use, or removed meanwhile
            lock = os.open(folder, FOLDER)
            try:
                status = os.fstat(lock)
                if status.st_uid == os.geteuid() and status.st_mtime < time.time() - MOMENT_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(folder)
            finally:
                os.close(lock)


def remove(*paths: Path) -> None:
    """Remove files and folders of any depth, even if a script has closed them; rm has no limit to a path's length."""
    for command in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        # chmod would follow a link
        left = [path for path in paths if os.path.lexists(path) and not (command[0] == "chmod" and path.is_symlink())]
        for first in range(0, len(left), AT_ONCE):
            some = left[first : first + AT_ONCE]
            subprocess.run([*command, "--", *some], capture_output=True, check=False)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which then takes this one's place; if the filling fails, this one stays."""
    folder = folder.resolve()
    aside, old = (folder.with_name(f".{folder.name}.nightshift-{age}") for age in ("new", "old"))
    for left in (aside, old):  # a killed process may have left them
        remove(left)
    aside.mkdir(parents=True)
    try:
        yield aside
        if folder.exists():
            folder.rename(old)  # a kill amid its deletion would leave what looks like somebody else's
        aside.rename(folder)
        remove(old)
    finally:
        remove(aside)


def read_plain(path: Path) -> str:
    """Return the text of a file as it is, "" where there is none; broken bytes and line ends survive write_plain."""
    check_plain(path)
    return path.read_bytes().decode(errors="surrogateescape") if path.exists() else ""


@contextmanager
def open_plain(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Open a plain file directly in this folder; raise OSError for a link, a pipe or a missing file."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # O_NONBLOCK: opening a pipe would otherwise wait without end
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # check before fdopen, which fails for a folder
            raise OSError(f"{folder / name} is no plain file")
        with os.fdopen(file, "rb", closefd=False) as plain:
            yield plain
    finally:
        os.close(file)


def read_end(folder: Path, name: str, most_bytes: int) -> bytes:
    """Return the last bytes of a plain file directly in this folder; raise OSError for anything else."""
    with open_plain(folder, name) as plain:
        return read_tail(plain, most_bytes)


def read_tail(file: BinaryIO, count: int) -> bytes:
    """Return the last `count` bytes of an open file, without moving its position."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), count, max(0, size - count))


def plain_bytes(path: Path) -> int | None:
    """Return the bytes of a plain file; None if there is none.

    Links do not count, since they could lead to another run's weights.
    """
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not path.parent.is_symlink():
            return status.st_size
    return None


def write_plain(path: Path, text: str | bytes) -> None:
    """Write a text atomically: a reader, and a power cut, finds the old one or the new one. A link stays a link."""
    import psutil  # slow to import, and `status` mostly writes nothing

    from agent.lab.hardware import write_atomically

    check_plain(path)
    path = Path(os.path.realpath(path))
    for leftover in path.parent.glob(f".{path.name}.*.*"):  # a killed writer may have left one
        pid = leftover.name.split(".")[-2]
        if re.fullmatch(r"\d+", pid) and not psutil.pid_exists(int(pid)):
            leftover.unlink(missing_ok=True)
    with naming(path):  # an error names this path, not the temporary file
        write_atomically(path, text if isinstance(text, bytes) else text.encode(errors="surrogateescape"))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an OSError name this path: that of a full disk names none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def put_beside(file: Path, suffix: str) -> Path:
    """Copy a file of the user's beside itself, under a name that is free, and return its path."""
    names = chain((f"{file}.{suffix}",), (f"{file}.{suffix}-{number}" for number in count(2)))
    aside = Path(next(name for name in names if not os.path.lexists(name)))
    write_plain(aside, file.read_bytes())
    shutil.copymode(file, aside)
    return aside


def flush(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def ignore_all(folder: Path) -> None:
    """Have git ignore all that is in a folder. A file that is there stays as it is: it may be a link to elsewhere."""
    if not os.path.lexists(folder / ".gitignore"):
        write_plain(folder / ".gitignore", "*\n")  # half of it, left by a kill, would stay


def check_plain(path: Path) -> None:
    """Raise NightError for a folder, and for a pipe or a device, which may have no end."""
    if path.exists() and not path.is_file():
        raise NightError(f"{path} is no plain file; move it away")


def check_disk(folder: Path) -> None:
    """Raise MachineError where the disk of a folder has too little room for a night."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise MachineError(
            f"{free / 2**30:.2f} GB are free on the disk of {folder}, a night wants {MIN_FREE_BYTES / 2**30:.0f} GB; "
            f"free some, as with {typed('pack', 'TAG', '--remove')}, and give the same command again"
        )


def disk_fails(error: BaseException) -> bool:
    """Return whether the error means a full disk or quota, or a failing disk; SQLite tells them apart only at times."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    return isinstance(error, sqlite3.OperationalError) and any(words in str(error) for words in ("full", "disk I/O"))


# ---- streams ---------------------------------------------------------------------------------------------------------


class _Steadfast:
    """Wrap a stream whose reader may disappear, as a closed terminal does; drop the output from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            _discard(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steadfast(stream: TextIO) -> TextIO:
    """Return the stream in a form that drops what cannot be written: a night goes on, a command keeps its exit code."""
    return cast(TextIO, _Steadfast(stream))


def _discard(stream: TextIO) -> None:
    """Send a stream's output to /dev/null: Python writes its buffer at exit, and would fail again without a reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
