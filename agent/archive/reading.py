"""Read a packed night: nothing that it does not name, nothing outside of the night's folder, each byte by its hash."""

import gzip
import hashlib
import math
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from agent.archive.contents import Contents, PackedFile
from agent.errors import NightError
from agent.git import valid_tag

CONTENTS, BUNDLE, FOLDER = "contents.json", "refs.bundle", "night"  # members of the file
PIECE_BYTES = 1 << 20
MOST_CONTENTS_BYTES = 64 << 20  # some 400,000 files
MODE = 0o755  # what is kept of a file's permissions
DAMAGED = (OSError, EOFError, ValueError, RecursionError, msgspec.MsgspecError, tarfile.TarError, zlib.error)


def read_contents(file: Path) -> Contents:
    """Return what a packed night says of itself, from its first bytes; raise NightError where it is damaged."""
    with opened(file) as (contents, _):
        return contents


def check_readable(file: Path) -> None:
    """Read a file that was just written to its end; raise NightError where a byte of it is not as it was."""
    with opened(file) as (contents, members):
        for path, content in members:
            _copy(content, None, contents.files.get(path))


def extract(file: Path, aside: Path) -> Contents:
    """Extract what a file says that it holds, and nothing else; raise NightError where it holds something else."""
    with opened(file) as (contents, members):
        if not valid_tag(contents.tag):
            raise ValueError(f"its tag is {contents.tag!r}")
        inside, room = aside / contents.tag, shutil.disk_usage(aside).free - contents.all_bytes
        for path in contents.folders:
            (inside / path).mkdir(parents=True, exist_ok=True)
        for path, content in members:
            one = contents.files.get(path)
            to = aside / BUNDLE if one is None else inside / path
            to.parent.mkdir(parents=True, exist_ok=True)
            with to.open("xb") as written:
                _copy(content, written, one, room)
                if one is not None:
                    os.fchmod(written.fileno(), one.mode & MODE)
            if one is not None:
                os.utime(to, ns=(one.mtime_ns, one.mtime_ns))
    return contents


@contextmanager
def opened(file: Path) -> Iterator[tuple[Contents, Iterator[tuple[str, IO[bytes]]]]]:
    """Yield what a file holds, and path → content of its members in turn; raise NightError where it is damaged."""
    try:
        with _Bounded(file, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            first = tar.next()
            if first is None or first.name != CONTENTS or first.size > MOST_CONTENTS_BYTES:
                raise ValueError("it does not begin with what it holds")
            contents = Contents.of_json(_content(tar, first).read())
            yield contents, _members(tar, contents)
    except FileNotFoundError:
        raise NightError(f"there is no {file}") from None
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk
        raise NightError(f"{file} is damaged, or no packed night ({error}); put it back from a backup") from error


def _members(tar: tarfile.TarFile, contents: Contents) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield each file that is to be there once, by its path in the night's folder; raise ValueError for any other."""
    due = {f"{FOLDER}/{path}": path for path in contents.files}
    due |= {BUNDLE: BUNDLE} if contents.refs else {}
    while (member := tar.next()) is not None:
        path = due.pop(member.name, None)
        if path is None:
            raise ValueError(f"it holds {member.name!r}, which it does not name, or twice")
        yield path, _content(tar, member)
        tar.members.clear()  # type: ignore[attr-defined]  # else it remembers each
    if due:
        raise ValueError(f"it lacks {next(iter(due))!r}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """Open a plain member; raise ValueError for a link, a device, a folder or a file with holes."""
    content = tar.extractfile(member) if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) else None
    if content is None or member.issparse():
        raise ValueError(f"{member.name!r} in it is no plain file")
    return content


def _copy(content: IO[bytes], to: IO[bytes] | None, one: PackedFile | None, room: float = math.inf) -> None:
    """Copy a member piece by piece; raise ValueError where size or hash are not as they were.

    one: None where they are not known; room: the most bytes that it may have then.
    """
    digest, size = hashlib.sha256(), 0
    while piece := content.read(PIECE_BYTES):
        size += len(piece)
        if one is None and size > room:
            raise ValueError("its commits take more than is free on the disk")
        if one is not None and size > one.bytes:
            break
        digest.update(piece)
        if to is not None:
            to.write(piece)
    if one is not None and (size, digest.hexdigest()) != (one.bytes, one.sha256):
        raise ValueError("a file in it is not as it was when it was packed")


class _Bounded(gzip.GzipFile):
    """Unpack a stream, and refuse a header of a tar file that claims gigabytes of memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MOST_CONTENTS_BYTES:
            raise ValueError(f"a part of it claims {size} bytes")
        return super().read(size)
