"""A night packed away in one file: TAG.tar.gz beside the folders of the other nights, and back again.

Each step leaves the night whole in one place, its folder or its file, and the next call goes on from there:

    pack      write the file aside → read it back → give it its name → rename the folder → delete that
    unpack    extract aside, by the hashes → bring back refs → give the folder its name → delete the file
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.archive.contents import Contents
from agent.archive.reading import BUNDLE, read_contents
from agent.archive.steps import check_free, check_refs, extract_night, give_name, work_folder, write_night
from agent.archive.writing import find
from agent.errors import NightError, RepoError
from agent.files import flush
from agent.git import read_bundle, refs_of_night
from agent.records.journal import Journal
from agent.records.place import Place


def pack(place: Place, tag: str, summary: Mapping[str, Any]) -> Contents:
    """Pack a night away and delete its folder; raise NightError for one that cannot be packed as it is.

    No night may be running. The file holds the summary as JSON.
    """
    folder, file = place.folder(tag), place.packed(tag)
    with work_folder(place) as aside:
        with Journal.read(place.journal(tag)) as journal:
            night = journal.night()
        if file.exists() and (there := read_contents(file)).started != night.started:
            raise NightError(f"{file} holds another night {there.tag}, begun {there.started}; move it away first")
        written = aside / file.name
        contents = write_night(place, night, summary, aside, written, base=night.base, parts=partial(find, folder))
        written.replace(file)
        flush(file.parent)
        folder.rename(aside / tag)
    return contents


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Hold a night that was put back, and what of it is not as it was."""

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
