"""A night packed away in one file: TAG.tar.gz beside the folders of the other nights, and back again.

The file holds everything that is in the night's folder, and its commits as a git bundle. Its first member says what it
holds, with sizes and hashes, so that a night can be listed without unpacking it.

Each step leaves the night whole in one place, its folder or its file, and the next call goes on from there:

    pack      write the file aside → read it back → give it its name → rename the folder → delete that
    unpack    extract aside, by the hashes → bring back refs → give the folder its name → delete the file
"""

import gzip
import hashlib
import json
import math
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any

from agent.clock import utc_now
from agent.errors import NightError, RepoError
from agent.files import remove
from agent.git.bundle import COMMIT, is_of_night, read_bundle, refs_of_night, write_bundle
from agent.records.journal import Journal
from agent.records.place import Place

FORMAT = 1
CONTENTS, BUNDLE, FOLDER = "contents.json", "refs.bundle", "night"  # members of the file
LEFT_OUT = frozenset({"reserve", "journal.sqlite-shm"})  # of a night that was killed; neither says anything
WRITTEN_AHEAD = "journal.sqlite-wal"  # nor does this where it is empty
LEVEL = 1  # of gzip: weights hardly get smaller at a higher one, or by xz, and would take minutes for each gigabyte
PIECE_BYTES = 1 << 20
MOST_CONTENTS_BYTES = 64 << 20  # some 400,000 files
MOST_DEPTH = 64  # of folders in a night's folder
MODE = 0o755  # what is kept of a file's permissions
DAMAGED = (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError, tarfile.TarError,
           zlib.error,)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedFile:
    bytes: int
    sha256: str
    mtime_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Say what a packed night holds."""

    tag: str
    started: str
    packed: str  # ISO 8601, UTC
    summary: Mapping[str, Any]  # where the night stands, as `nights` shows it
    files: Mapping[str, PackedFile]  # by path inside the night's folder
    folders: tuple[str, ...]  # those without any file
    refs: Mapping[str, str] = field(default_factory=dict)  # ref → commit
    format: int = FORMAT

    @property
    def all_bytes(self) -> int:
        return sum(one.bytes for one in self.files.values())

    @classmethod
    def of_json(cls, text: bytes) -> "Contents":
        """Read what a file says of itself; raise one of DAMAGED for what no night's folder holds."""
        said = json.loads(text)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}; this nightshift reads {FORMAT}")
        files = {path: PackedFile(**facts) for path, facts in said["files"].items()}
        for path in (*files, *said["folders"]):
            _check_path(path, files)
        for one in files.values():
            if not all(type(number) is int and 0 <= number < 2**63 for number in (one.bytes, one.mtime_ns, one.mode)):
                raise ValueError("a file of it has a size, time or mode that no file has")
        if not all(COMMIT.fullmatch(sha) for sha in said["refs"].values()):
            raise ValueError("a ref of it leads to no commit")
        times_and_tag = (said[name] for name in ("tag", "started", "packed"))
        if "journal.sqlite" not in files or not all(isinstance(one, str) for one in times_and_tag):
            raise ValueError("it holds no journal, or its tag or a time of it is no text")
        return cls(**said | {"files": files, "folders": tuple(said["folders"])})


def _check_path(path: str, files: Mapping[str, PackedFile]) -> None:
    """Raise ValueError for a path that leads out of the night's folder, or through another file."""
    parts = PurePosixPath(path).parts
    plain = str(PurePosixPath(path)) == path and not path.startswith("/") and "\0" not in path
    if not plain or not 0 < len(parts) <= MOST_DEPTH or ".." in parts or path == ".":
        raise ValueError(f"{path!r} is no path inside a night's folder")
    if any(str(above) in files for above in PurePosixPath(path).parents):
        raise ValueError(f"{path!r} lies inside a file")


# ---- pack ------------------------------------------------------------------------------------------------------------


def pack(place: Place, tag: str, summary: Mapping[str, Any]) -> Contents:
    """Pack a night away and delete its folder; raise NightError for one that cannot be packed as it is.

    No night may be running, and summary has to be such as JSON has.
    """
    folder, file = place.folder(tag), place.packed(tag)
    with _aside(place) as aside:
        with Journal.read(place.journal(tag)) as journal:
            night = journal.night()
        if file.exists() and (there := read_contents(file)).started != night.started:
            raise NightError(f"{file} holds another night {there.tag}, begun {there.started}; move it away first")
        found = _found(folder)
        refs = refs_of_night(place.repo, tag)
        bundle = aside / BUNDLE
        if refs:
            write_bundle(place.repo, bundle, refs, night.base)
        folders = tuple(sorted(path for path, one in found.items() if one is None))
        files = {path: _packed(folder / path, one) for path, one in found.items() if one is not None}
        contents = Contents(tag, night.started, utc_now(), dict(summary), files, folders, refs)
        written = aside / file.name
        _write(contents, folder, bundle, written)
        _check_readable(written)
        if _times(_found(folder)) != _times(found):
            raise NightError(f"{folder} changed while it was packed; end what writes there, and pack it again")
        written.replace(file)
        _flush(file.parent)
        folder.rename(aside / tag)
    return contents


def _found(folder: Path) -> dict[str, os.stat_result | None]:
    """Return path → facts of all files in a night's folder, and None for a folder without any; raise NightError.

    A script may have left anything in the folder of its run. What is no plain file is named, and not packed.
    """
    found: dict[str, os.stat_result | None] = {}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        inside = sorted(os.scandir(here), key=lambda entry: entry.name)
        for entry in inside:
            path, facts = Path(entry.path), entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                waiting.append(path)
            elif not stat.S_ISREG(facts.st_mode):
                kind = "link" if stat.S_ISLNK(facts.st_mode) else "pipe, socket or device"
                raise NightError(f"{path} is a {kind}, left by a script; look at it, delete it, and pack again")
            elif here != folder or not (entry.name in LEFT_OUT or (entry.name == WRITTEN_AHEAD and not facts.st_size)):
                found[path.relative_to(folder).as_posix()] = facts
        if here != folder and not inside:
            found[here.relative_to(folder).as_posix()] = None
        if len(here.relative_to(folder).parts) > MOST_DEPTH - 2 and inside:
            raise NightError(f"{here} is more than {MOST_DEPTH} folders deep, left by a script; delete it")
    return dict(sorted(found.items()))


def _times(found: Mapping[str, os.stat_result | None]) -> dict[str, object]:
    return {path: one and (one.st_size, one.st_mtime_ns, one.st_ino) for path, one in found.items()}


def _packed(path: Path, facts: os.stat_result) -> PackedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return PackedFile(facts.st_size, digest, max(0, facts.st_mtime_ns), stat.S_IMODE(facts.st_mode) & MODE)


def _write(contents: Contents, folder: Path, bundle: Path, to: Path) -> None:
    """Write the file and flush it to the disk."""
    with to.open("wb") as raw:
        with gzip.open(raw, "wb", LEVEL) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            said = json.dumps(asdict(contents)).encode()
            tar.addfile(_member(CONTENTS, len(said)), BytesIO(said))
            for path, one in contents.files.items():
                member = _member(f"{FOLDER}/{path}", one.bytes, one.mtime_ns // 10**9, one.mode)
                with (folder / path).open("rb") as file:
                    tar.addfile(member, file)
            if contents.refs:
                with bundle.open("rb") as file:
                    tar.addfile(_member(BUNDLE, bundle.stat().st_size), file)
        raw.flush()
        os.fsync(raw.fileno())


def _member(name: str, size: int, mtime: int = 0, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, mtime, mode
    return member


def _check_readable(file: Path) -> None:
    """Read a file that was just written as a stranger would; raise NightError where a byte of it is not as it was."""
    with _opened(file) as (contents, members):
        for path, content in members:
            _copy(content, None, contents.files.get(path))


# ---- unpack ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unpacked:
    contents: Contents
    moved: tuple[str, ...]  # refs that lead elsewhere by now, and were left
    lost: str | None  # why commits that are gone could not be brought back; None: they are there


def unpack(place: Place, tag: str) -> Unpacked:
    """Put a packed night back as it was, and delete the file; raise NightError for one that is damaged or hostile."""
    folder, file = place.folder(tag), place.packed(tag)
    if place.repo.tracks(file.relative_to(place.repo.root).as_posix()):
        raise NightError(f"git tracks {file}, so it may be somebody else's, and a night runs programs that it names; "
                         f"if it is yours, run: git rm --cached {file}")  # fmt: skip
    with _aside(place) as aside:
        there = read_contents(file)
        if there.tag != tag:
            raise NightError(f"{file} holds night {there.tag}; rename it to {place.packed(there.tag).name}")
        if place.journal(tag).exists():
            _check_same(place, there)
            file.unlink()  # a call that was killed here had put all of it back
            return Unpacked(there, (), None)
        _check_free(folder)
        free = shutil.disk_usage(aside).free
        if there.all_bytes >= free:
            needed_gb, free_gb = there.all_bytes / 1e9, free / 1e9
            raise NightError(
                f"night {tag} takes {needed_gb:.2f} GB, and {free_gb:.2f} GB are free here; free some, and try again"
            )
        contents = _extract(file, aside)
        with Journal.read(aside / tag / "journal.sqlite") as journal:
            if (journal.night().tag, journal.night().started) != (tag, contents.started):
                raise NightError(f"the journal in {file} is that of another night; put it back from a backup")
        moved, lost = _bring_back_refs(place, contents, aside / BUNDLE)
        if folder.exists():
            folder.rename(aside / "report")
        (aside / tag).rename(folder)
        _flush(folder.parent)
        file.unlink()
    return Unpacked(contents, moved, lost)


def _extract(file: Path, aside: Path) -> Contents:
    """Extract what a file says that it holds, and nothing else; raise NightError where it holds something else."""
    with _opened(file) as (contents, members):
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


def _bring_back_refs(place: Place, contents: Contents, bundle: Path) -> tuple[tuple[str, ...], str | None]:
    """Return the refs that were left since they lead elsewhere, and why others could not be brought back."""
    for ref in contents.refs:
        if not is_of_night(ref, contents.tag):
            raise NightError(f"{place.packed(contents.tag)} would set {ref}, which is not the night's; do not use it")
    if not contents.refs or refs_of_night(place.repo, contents.tag) == dict(contents.refs):
        return (), None
    try:
        return read_bundle(place.repo, bundle, contents.refs), None
    except RepoError as error:
        return (), str(error)


def _check_free(folder: Path) -> None:
    """Raise NightError where a folder of the night's name holds more than the report of the packed night."""
    if folder.exists() and {path.name for path in folder.iterdir()} - {"report.html"}:
        raise NightError(f"{folder} is there, and holds no journal; move it away, and unpack the night again")


def _check_same(place: Place, there: Contents) -> None:
    with Journal.read(place.journal(there.tag)) as journal:
        if journal.night().started != there.started:
            raise NightError(
                f"{place.folder(there.tag)} is another night of that tag, begun {journal.night().started}; "
                f"move one of the two away"
            )


# ---- the file --------------------------------------------------------------------------------------------------------


def packed_tags(place: Place) -> tuple[str, ...]:
    """List the nights that are packed away here."""
    ending, there = place.packed("").name, (path for path in place.nights.glob("[!.]*") if path.is_file())
    return tuple(sorted(path.name.removesuffix(ending) for path in there if path.name.endswith(ending)))


def read_contents(file: Path) -> Contents:
    """Return what a packed night says of itself, from its first bytes; raise NightError where it is damaged."""
    with _opened(file) as (contents, _):
        return contents


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Contents, Iterator[tuple[str, IO[bytes]]]]]:
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


def sweep_aside(place: Place) -> Path:
    """Remove what a call that was killed left, and return the place of the folder that held it."""
    aside = place.nights / ".packing"  # the journal of a night in it is two folders down, where no night is looked for
    remove(aside)
    return aside


@contextmanager
def _aside(place: Place) -> Iterator[Path]:
    """Yield an empty folder beside the nights, which is removed in the end."""
    aside = sweep_aside(place)
    aside.mkdir(parents=True)
    try:
        yield aside
    finally:
        remove(aside)


def _flush(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
