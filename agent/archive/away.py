"""A night packed away in one file: TAG.tar.gz beside the folders of the other nights, and back again.

Each step leaves the night whole in one place, its folder or its file, and the next call goes on from there:

    pack      write the file aside → read it back → give it its name → rename the folder → delete that
    unpack    extract aside, by the hashes → bring back refs → give the folder its name → delete the file
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.archive.contents import Contents
from agent.archive.reading import BUNDLE, extract, read_contents
from agent.archive.writing import find, write
from agent.errors import NightError, RepoError
from agent.files import remove
from agent.git.bundle import is_of_night, read_bundle, refs_of_night, write_bundle
from agent.records.journal import Journal
from agent.records.place import Place


def pack(place: Place, tag: str, summary: Mapping[str, Any]) -> Contents:
    """Pack a night away and delete its folder; raise NightError for one that cannot be packed as it is.

    No night may be running, and summary has to be such as JSON has.
    """
    folder, file = place.folder(tag), place.packed(tag)
    with work_folder(place) as aside:
        with Journal.read(place.journal(tag)) as journal:
            night = journal.night()
        if file.exists() and (there := read_contents(file)).started != night.started:
            raise NightError(f"{file} holds another night {there.tag}, begun {there.started}; move it away first")
        found = find(folder)
        refs = refs_of_night(place.repo, tag)
        if refs:
            write_bundle(place.repo, aside / BUNDLE, refs, night.base)
        contents = found.contents(night, summary, refs)
        written = aside / file.name
        write(contents, found, aside / BUNDLE, written)
        if find(folder).times() != found.times():
            raise NightError(f"{folder} changed while it was packed; end what writes there, and pack it again")
        written.replace(file)
        flush(file.parent)
        folder.rename(aside / tag)
    return contents


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
    with work_folder(place) as aside:
        there = read_contents(file)
        if there.tag != tag:
            raise NightError(f"{file} holds night {there.tag}; rename it to {place.packed(there.tag).name}")
        if place.journal(tag).exists():
            _check_same(place, there)
            file.unlink()  # a call that was killed here had put all of it back
            return Unpacked(there, (), None)
        check_free(folder)
        contents = extract_night(file, there, aside)
        moved, lost = _bring_back_refs(place, contents, aside / BUNDLE)
        give_name(aside / tag, folder)
        file.unlink()
    return Unpacked(contents, moved, lost)


def _bring_back_refs(place: Place, contents: Contents, bundle: Path) -> tuple[tuple[str, ...], str | None]:
    """Return the refs that were left since they lead elsewhere, and why others could not be brought back."""
    check_refs(contents, place.packed(contents.tag))
    if not contents.refs or refs_of_night(place.repo, contents.tag) == dict(contents.refs):
        return (), None
    try:
        return read_bundle(place.repo, bundle, contents.refs), None
    except RepoError as error:
        return (), str(error)


def _check_same(place: Place, there: Contents) -> None:
    with Journal.read(place.journal(there.tag)) as journal:
        if journal.night().started != there.started:
            raise NightError(
                f"{place.folder(there.tag)} is another night of that tag, begun {journal.night().started}; "
                f"move one of the two away"
            )


def packed_tags(place: Place) -> tuple[str, ...]:
    """List the nights that are packed away here."""
    ending, there = place.packed("").name, (path for path in place.nights.glob("[!.]*") if path.is_file())
    return tuple(sorted(path.name.removesuffix(ending) for path in there if path.name.endswith(ending)))


# ---- shared with the nights that move --------------------------------------------------------------------------------


def extract_night(file: Path, there: Contents, aside: Path) -> Contents:
    """Extract a night, for which there is room, into aside/TAG; raise NightError if its journal is another night's."""
    free = shutil.disk_usage(aside).free
    if there.all_bytes >= free:
        needed_gb, free_gb = there.all_bytes / 1e9, free / 1e9
        raise NightError(
            f"night {there.tag} takes {needed_gb:.2f} GB, and {free_gb:.2f} GB are free here; free some, and try again"
        )
    contents = extract(file, aside)
    with Journal.read(aside / contents.tag / "journal.sqlite") as journal:
        if (journal.night().tag, journal.night().started) != (there.tag, there.started):
            raise NightError(f"the journal in {file} is that of another night; put it back from a backup")
    return contents


def check_refs(contents: Contents, file: Path) -> None:
    """Raise NightError for a ref that no night of this tag has."""
    for ref in contents.refs:
        if not is_of_night(ref, contents.tag):
            raise NightError(f"{file} would set {ref}, which is not the night's; do not use it")


def check_free(folder: Path) -> None:
    """Raise NightError where a folder of the night's name holds more than the report of the packed night."""
    if folder.exists() and {path.name for path in folder.iterdir()} - {"report.html"}:
        raise NightError(f"{folder} is there, and holds no journal; move it away, and unpack the night again")


def give_name(extracted: Path, folder: Path) -> None:
    """Give an extracted night its folder's name, for which check_free() has looked."""
    if folder.exists():
        folder.rename(extracted.with_name("report"))
    extracted.rename(folder)
    flush(folder.parent)


def sweep_aside(place: Place) -> Path:
    """Remove what a call that was killed left, and return the place of the folder that held it."""
    aside = place.nights / ".packing"  # the journal of a night in it is two folders down, where no night is looked for
    remove(aside)
    return aside


@contextmanager
def work_folder(place: Place) -> Iterator[Path]:
    """Yield an empty folder beside the nights, which is removed in the end."""
    aside = sweep_aside(place)
    aside.mkdir(parents=True)
    try:
        yield aside
    finally:
        remove(aside)


def flush(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
