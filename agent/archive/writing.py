"""Write a night's folder and its commits into one file, and read it back before anybody relies on it."""

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import msgspec

from agent.archive.contents import MOST_DEPTH, Contents, PackedFile
from agent.archive.reading import BUNDLE, CONTENTS, FOLDER, MODE, check_readable
from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import Night

LEFT_OUT = frozenset({"reserve", "journal.sqlite-shm"})  # of a night that was killed; neither says anything
WRITTEN_AHEAD = "journal.sqlite-wal"  # nor does this where it is empty
LEVEL = 1  # of gzip: weights hardly get smaller at a higher one, or by xz, and would take minutes for each gigabyte


@dataclass(frozen=True, slots=True)
class Parts:
    """Hold what is to be packed: the files of a night's folder, those from elsewhere, and folders without any."""

    files: Mapping[str, Path]  # path in the packed night → where it lies
    facts: Mapping[str, os.stat_result]  # of the same files
    folders: tuple[str, ...]

    def contents(self, night: Night, summary: Mapping[str, Any], refs: Mapping[str, str]) -> Contents:
        files = {path: _packed(self.files[path], facts) for path, facts in self.facts.items()}
        return Contents(night.tag, night.started, utc_now(), dict(summary), files, self.folders, refs)

    def times(self) -> dict[str, object]:
        return {path: (one.st_size, one.st_mtime_ns, one.st_ino) for path, one in self.facts.items()}


def find(
    folder: Path,
    is_left_out: Callable[[PurePosixPath], bool] = lambda path: False,
    beside: Mapping[str, Path] = MappingProxyType({}),
) -> Parts:
    """Find all files in a night's folder, and add those beside it; raise NightError for what is no plain file.

    A script may have left anything in the folder of its run: it is named, and not packed.
    """
    files, folders, waiting = dict(beside), [], [folder]
    while waiting:
        here = waiting.pop()
        inside = [entry for entry in os.scandir(here) if not is_left_out(_inside(folder, entry.path))]
        for entry in inside:
            path, facts = Path(entry.path), entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                waiting.append(path)
            elif not stat.S_ISREG(facts.st_mode):
                kind = "link" if stat.S_ISLNK(facts.st_mode) else "pipe, socket or device"
                raise NightError(f"{path} is a {kind}, left by a script; look at it, delete it, and pack again")
            elif here != folder or not (entry.name in LEFT_OUT or (entry.name == WRITTEN_AHEAD and not facts.st_size)):
                files.setdefault(str(_inside(folder, entry.path)), path)
        if here != folder and not inside:
            folders.append(str(_inside(folder, str(here))))
        if len(here.relative_to(folder).parts) > MOST_DEPTH - 2 and inside:
            raise NightError(f"{here} is more than {MOST_DEPTH} folders deep, left by a script; delete it")
    files = dict(sorted(files.items()))
    told = {path: file.stat(follow_symlinks=False) for path, file in files.items()}
    return Parts(files, told, tuple(sorted(folders)))


def _inside(folder: Path, path: str) -> PurePosixPath:
    return PurePosixPath(Path(path).relative_to(folder).as_posix())


def _packed(path: Path, facts: os.stat_result) -> PackedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return PackedFile(facts.st_size, digest, max(0, facts.st_mtime_ns), stat.S_IMODE(facts.st_mode) & MODE)


def write(contents: Contents, parts: Parts, bundle: Path, to: Path) -> None:
    """Write the file, flush it to the disk, and read it back as a stranger would."""
    with to.open("wb") as raw:
        with gzip.open(raw, "wb", LEVEL) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            listed = msgspec.json.encode(contents)
            tar.addfile(_member(CONTENTS, len(listed)), BytesIO(listed))
            for path, one in contents.files.items():
                member = _member(f"{FOLDER}/{path}", one.bytes, one.mtime_ns // 10**9, one.mode)
                with parts.files[path].open("rb") as file:
                    tar.addfile(member, file)
            if contents.refs:
                with bundle.open("rb") as file:
                    tar.addfile(_member(BUNDLE, bundle.stat().st_size), file)
        raw.flush()
        os.fsync(raw.fileno())
    check_readable(to)


def _member(name: str, size: int, mtime: int = 0, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, mtime, mode
    return member
