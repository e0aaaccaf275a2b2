"""Pack a night: write its folder and its commits into one file, and read the file back before anything relies on it.

    write the file aside → read it back → give it its name → with remove: rename the folder → delete that

After each step the night is whole in its folder or in the file, and the next call goes on from there.
"""

import gzip
import os
import stat
import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from agent.archive.unpack import BUNDLE, CONTENTS, FOLDER, MANIFEST, PROGRAM, WARM, Contents, read_contents, work_folder
from agent.errors import NightError
from agent.experiment import Night
from agent.files import flush
from agent.git import refs_of_night, write_bundle
from agent.records.place import Place, read_night

# files that a kill may leave, which say nothing, and machine code, which the next machine compiles for itself
STAYS_BEHIND = frozenset({"reserve", "journal.sqlite-shm", WARM})
LEVEL = 1  # of gzip: weights hardly get smaller at a higher one, or by xz, and would take minutes for each gigabyte
PIECE_BYTES = 1 << 20
LeftOut = Callable[[PurePosixPath], bool]  # whether a path in a night's folder stays behind


def pack(
    place: Place, tag: str, file: Path, summary: Mapping[str, Any], is_left_out: LeftOut, *, remove: bool = False
) -> Contents:
    """Write a night into a file; raise NightError for one that cannot be packed as it is.

    No night may be running. The file holds the summary as JSON.

    remove: also delete the night's folder. The file may then exist, if it holds this very night.
    """
    folder = place.folder(tag)
    night = read_night(place, tag).night
    written = file.with_name(f".{file.name}.nightshift-new")  # beside it: it may be on another disk
    with work_folder(place) as aside:
        _check_name(file, night, may_exist=remove)
        entries = _entries(folder, is_left_out)
        members = {FOLDER: folder} | {f"{FOLDER}/{path}": folder / path for path in entries}
        # what another machine may lack
        beside = {PROGRAM: place.script_path.parent / PROGRAM, MANIFEST: Path(night.data) / "manifest.json"}
        members |= {
            f"{FOLDER}/{name}": path for name, path in beside.items() if path.is_file() and not path.is_symlink()
        }
        refs = refs_of_night(place.repo, tag)
        if refs:
            # a file that stays beside its repository needs no copy of the history; a shallow clone has none to hand on
            is_shallow = place.repo.git("rev-parse", "--is-shallow-repository") == "true"
            write_bundle(place.repo, aside / BUNDLE, refs, night.base if remove or is_shallow else "")
            members[BUNDLE] = aside / BUNDLE
        contents = Contents(tag, night.started, summary, refs)
        try:
            _write(written, contents, members)
            if _entries(folder, is_left_out) != entries:
                raise NightError(f"{folder} changed while it was packed; end what writes there, and pack it again")
            written.replace(file)
        finally:
            written.unlink(missing_ok=True)
        flush(file.parent)
        if remove:
            folder.rename(aside / FOLDER)
    return contents


def _check_name(file: Path, night: Night, *, may_exist: bool) -> None:
    """Raise NightError where the file cannot be written, or is there; may_exist: unless it holds this very night."""
    if not file.parent.is_dir():
        raise NightError(f"there is no folder {file.parent}; make it, or name another file")
    if (file.exists() or file.is_symlink()) and not (may_exist and read_contents(file).started == night.started):
        raise NightError(f"{file} is there already; name another file, or move it away")


def _entries(folder: Path, is_left_out: LeftOut) -> dict[str, tuple[int, int]]:
    """Return path → bytes and time of all files and folders to pack; raise NightError for what is neither.

    A script may have left anything in the folder of its run: it is named, and not packed.
    """
    entries, waiting = {}, [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            inside, status = PurePosixPath(path.relative_to(folder)), path.lstat()
            if str(inside) in STAYS_BEHIND or is_left_out(inside):
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            elif not stat.S_ISREG(status.st_mode):
                raise NightError(f"{path} is no plain file; a script left it: look at it, delete it, and pack again")
            entries[str(inside)] = status.st_size, status.st_mtime_ns
    return entries


def _write(file: Path, contents: Contents, members: Mapping[str, Path]) -> None:
    """Write the file, flush it to the disk, and read it back to the checksum at its end."""
    with file.open("wb") as raw:
        with gzip.open(raw, "wb", LEVEL) as packed, tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
            text = msgspec.json.encode(contents)
            first = tarfile.TarInfo(CONTENTS)
            first.size = len(text)
            tar.addfile(first, BytesIO(text))
            for name, path in members.items():
                tar.add(path, name, recursive=False, filter=_nameless)
        raw.flush()
        os.fsync(raw.fileno())
    with gzip.open(file) as packed:
        while packed.read(PIECE_BYTES):
            pass


def _nameless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Take the user's name out of a member."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
