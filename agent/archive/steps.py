"""Take the steps of packing and unpacking that are the same for nights packed away and for those that move."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.archive.checks import check_passive
from agent.archive.contents import Contents
from agent.archive.reading import BUNDLE, extract
from agent.archive.writing import Parts, write
from agent.errors import NightError
from agent.experiment import Night
from agent.files import flush, ignore_all, remove
from agent.git import is_of_night, refs_of_night, write_bundle
from agent.records.journal import Journal
from agent.records.place import Place


def write_night(
    place: Place,
    night: Night,
    summary: Mapping[str, Any],
    aside: Path,
    to: Path,
    *,
    base: str,
    parts: Callable[[], Parts],
) -> Contents:
    """Write a night, and its commits since `base`, into a file; raise NightError if its parts change meanwhile."""
    found, refs = parts(), refs_of_night(place.repo, night.tag)
    if refs:
        write_bundle(place.repo, aside / BUNDLE, refs, base)
    contents = found.contents(night, summary, refs)
    write(contents, found, aside / BUNDLE, to)
    if parts().times() != found.times():
        folder = place.folder(night.tag)
        raise NightError(f"{folder} changed while it was packed; end what writes there, and pack it again")
    return contents


def extract_night(file: Path, there: Contents, aside: Path) -> Contents:
    """Extract a night, for which there is room, into aside/TAG; raise NightError if its journal is another night's."""
    free = shutil.disk_usage(aside).free
    if there.all_bytes >= free:
        needed_gb, free_gb = there.all_bytes / 1e9, free / 1e9
        raise NightError(
            f"night {there.tag} takes {needed_gb:.2f} GB, and {free_gb:.2f} GB are free here; free some, and try again"
        )
    contents = extract(file, aside)
    check_passive(aside / contents.tag / "journal.sqlite", file)
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
    """Give an extracted night its folder's name, for which check_free() has looked; git ignores it as any night."""
    ignore_all(folder.parent)
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
