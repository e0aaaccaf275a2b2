"""Carry a night to another machine: a copy of it in one file, in the format of nights that are packed away.

The file leaves out what the night can do without, and adds what the other machine may lack: the history that its
commits stand on, program.md, and the manifest of its corpus. Until its last step, unpacking changes nothing that a
second call would not do again in the same way.

    pack      write the file aside → read it back → give it its name
    unpack    extract aside, by the hashes → find the corpus → bring refs → bring program.md → give the folder its name
              → write its rows
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from agent.archive.checks import check_facts
from agent.archive.contents import Contents
from agent.archive.reading import BUNDLE, read_contents
from agent.archive.steps import check_free, check_refs, extract_night, give_name, sweep_aside, work_folder, write_night
from agent.archive.writing import find
from agent.errors import NightError
from agent.experiment import Night
from agent.files import flush
from agent.git import read_bundle, refs_of_night, valid_tag
from agent.records.journal import Journal
from agent.records.place import Place, new_id
from agent.records.results import write_ledger

MANIFEST = "corpus.json"  # in the night's folder: the manifest.json of its corpus, which stays behind
PROGRAM = "program.md"  # in the night's folder: the one beside the script, until it lies beside one again


def pack(
    place: Place, tag: str, to: Path, summary: Mapping[str, Any], is_left_out: Callable[[PurePosixPath], bool]
) -> Contents:
    """Write a night into a new file; raise NightError for one that cannot be packed as it is.

    No night may be running. The file holds the summary as JSON.
    """
    sweep_aside(place)  # a call that was killed may have had only that left to do
    if to.exists() or to.is_symlink():
        raise NightError(f"{to} is there already; name another file, or delete it")
    if not to.parent.is_dir():
        raise NightError(f"there is no folder {to.parent}; make it, or name another file")
    written = to.with_name(f".{to.name}.nightshift-new")  # beside it: it may be on another disk
    with work_folder(place) as aside:
        with Journal.read(place.journal(tag)) as journal:
            night = journal.night()
        beside = {PROGRAM: place.script_path.parent / PROGRAM, MANIFEST: Path(night.data) / "manifest.json"}
        there = {path: file for path, file in beside.items() if file.is_file() and not file.is_symlink()}
        is_shallow = place.repo.git("rev-parse", "--is-shallow-repository") == "true"
        base = night.base if is_shallow else ""  # such a clone cannot hand on more than it has
        parts = partial(find, place.folder(tag), is_left_out, there)
        try:
            contents = write_night(place, night, summary, aside, written, base=base, parts=parts)
            written.rename(to)
        finally:
            written.unlink(missing_ok=True)
        flush(to.parent)
    return contents


# ---- unpack ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """Hold a night that was unpacked, and what of it is not as it was."""

    contents: Contents
    night: Night  # as it goes on here
    has_corpus: bool
    other_program: Path | None  # the night's program.md, where another one lies beside the script; None: it lies there


def unpack(place: Place, file: Path, at_home: Callable[[Night], Night | None]) -> Arrived:
    """Put a night that came in a file beside the others; raise NightError where that would overwrite anything.

    at_home returns the night with its corpus on this machine, and None where that is not here. The file stays.
    """
    there = read_contents(file)
    if valid_tag(there.tag) and place.journal(there.tag).exists():  # a call that was killed may have brought it
        sweep_aside(place)
        write_ledger(place)
    _check_new(place, there, file)
    with work_folder(place) as aside:
        contents = extract_night(file, there, aside)
        with Journal.resume(aside / contents.tag / "journal.sqlite") as journal:
            check_facts(journal, file)
            journal.leave_runs_behind()
            night = journal.night()
            home = at_home(night)
            journal.record_facts(id=new_id())  # where both go on, each has its own folder on the nodes of a cluster
            if home is not None:
                journal.record_facts(data=home.data, pins=home.pins)
        if contents.refs:
            moved = read_bundle(place.repo, aside / BUNDLE, contents.refs)
            assert not moved  # as _check_new() has found
        program = _bring_program(place, aside / contents.tag / PROGRAM)
        give_name(aside / contents.tag, place.folder(contents.tag))
    write_ledger(place)
    return Arrived(contents, home or night, home is not None, place.folder(contents.tag) / PROGRAM if program else None)


def _check_new(place: Place, there: Contents, file: Path) -> None:
    """Raise NightError where a night of this tag, or one of its refs, is here."""
    if not valid_tag(there.tag):
        raise NightError(f"{file} holds a night whose tag is {there.tag!r}; do not use it")
    check_refs(there, file)
    folder, away = place.folder(there.tag), place.packed(there.tag)
    if place.journal(there.tag).exists():
        with Journal.read(place.journal(there.tag)) as journal:
            started = journal.night().started
        which = "this night" if started == there.started else f"another night of that tag, begun {started}"
        raise NightError(f"{folder} holds {which} already; move it away to unpack {file}")
    if away.exists():
        raise NightError(f"a night {there.tag} is packed away in {away}; move it away to unpack {file}")
    check_free(folder)
    place.check_own(there.tag)
    for ref, sha in refs_of_night(place.repo, there.tag).items():
        if there.refs.get(ref) != sha:
            raise NightError(
                f"{ref} leads to {sha[:7]} here, which is not the night's in {file}; delete it to unpack the night: "
                f"git update-ref -d {ref}"
            )


def _bring_program(place: Place, ours: Path) -> bool:
    """Put program.md beside the script where there is none; return whether another one is there."""
    theirs = place.script_path.parent / PROGRAM
    if not ours.is_file():
        return False
    if not theirs.exists() and not theirs.is_symlink():
        theirs.parent.mkdir(parents=True, exist_ok=True)
        ours.rename(theirs)
        return False
    if theirs.is_file() and theirs.read_bytes() == ours.read_bytes():
        ours.unlink()
        return False
    return True
