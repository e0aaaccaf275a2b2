"""A night in one file, for another machine or to make room: nightshift pack, nightshift unpack."""

import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from rich.console import Console

from agent.archive import away, moving
from agent.archive.steps import sweep_aside
from agent.cli.find import known_tag
from agent.cli.nights import row_of, size_of, size_words, summary_of
from agent.cli.options import SCRIPT
from agent.errors import NightError
from agent.experiment import Night, Status, incumbent
from agent.files import check_plain
from agent.git import Repo, valid_tag
from agent.invocation import typed
from agent.lab import hardware
from agent.model.weights import NAME
from agent.night.lock import only_night
from agent.night.opening import at_home, missing_corpus
from agent.night.state import unaudited
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import write_ledger
from agent.records.terms import SANDBOXES, as_words
from agent.sandbox.environment import TMP
from agent.text import counted, harmless

LOSSES = re.compile(r".*\.f32")
OF_ATTEMPT = re.compile(r"[0-9]{4,9}")  # the folder of its runs
OF_REPLAY = re.compile(r"[0-9]{1,9}-.*")

# ---- pack ------------------------------------------------------------------------------------------------------------


def pack(
    tag: str | None = None,
    /,
    *,
    out: Path | None = None,
    weights: Literal["best", "all", "none"] = "best",
    remove: bool = False,
) -> None:
    """Write a night into one file, to go on with it on another machine, or to make room.

    nightshift unpack puts it beside the nights there. The file holds journal, commits with all history below them,
    logs, curves, notes, program.md, and the weights that --weights names. The night also stays here. It may not be
    running.

    With --remove its folder becomes the file experiments/nights/TAG.tar.gz, with all weights. The file is read back
    before the folder is deleted. The night's rows stay in results.tsv.

    Args:
        tag: the night (default: the latest)
        out: the file to write; it must not exist (default: nightshift-TAG.tar.gz)
        weights: of which attempts: the best, all that have some, or none, so that the file is small (default: best)
        remove: pack the night away, beside the other nights, and delete its folder
    """
    place = Place.of(SCRIPT)
    if tag is not None and not valid_tag(tag):
        raise NightError(f"{tag!r} is no tag; see the nights with: {typed('nights')}")
    with only_night(place.repo.common_dir):
        if remove:
            if out is not None or tag is None:
                own = typed("pack", tag or "TAG", "--remove")
                raise NightError(f"--remove packs a night that is named into its own place, as in: {own}")
            _pack_away(place, tag)
        else:
            night = known_tag(place, tag)
            _copy(place, night, (out or Path(f"nightshift-{night}.tar.gz")).expanduser(), weights)


def _pack_away(place: Place, tag: str) -> None:
    sweep_aside(place)  # a call that was killed may have had only that left to do
    folder, file = place.folder(tag), place.packed(tag)
    unpack_with = f"unpack it with: {typed('unpack', tag)}"
    if file.exists() and not place.journal(tag).exists():
        print(f"night {tag} is packed in {file}; {unpack_with}")
        return
    known_tag(place, tag)
    before, summary = size_of(folder), _summary(place, tag)
    write_ledger(place)  # whose rows stay when the journal is away
    with _working(f"packing night {tag}: {size_words(before)}"):
        contents = away.pack(place, tag, summary)
    commits = f", with {counted(len(contents.refs), 'ref')}" if contents.refs else ""
    print(f"packed night {tag} into {file}: {counted(len(contents.files), 'file')}{commits}")
    print(f"{size_words(before)} became {size_words(file.stat().st_size)}; {unpack_with}")


def _copy(place: Place, tag: str, file: Path, weights: str) -> None:
    with Journal.read(place.journal(tag)) as journal:
        if weights == "none":
            _check_goes_on_without(journal)
        needed = _needed_to_go_on(journal) if weights == "best" else None
    with _working(f"packing night {tag}"):
        is_left_out = left_out(needed, any_weights=weights != "none")
        contents = moving.pack(place, tag, file, _summary(place, tag), is_left_out)
    size, refs = size_words(file.stat().st_size), counted(len(contents.refs), "ref")
    print(f"packed night {tag} into {file}: {size}, {counted(len(contents.files), 'file')} with {refs}")
    print(f"it stays here, too: go on in one place alone; in the other repository: {typed('unpack', file.name)}")


def _summary(place: Place, tag: str) -> Mapping[str, Any]:
    with Journal.read(place.journal(tag)) as journal:
        return summary_of(row_of(journal))


def _needed_to_go_on(journal: Journal) -> frozenset[int] | None:
    """Return the attempts whose weights a night needs where it goes on; None while a dawn may need any of them.

    These are the best, and those that have to be judged, scored or audited still.
    """
    history, dawns = journal.outlines(), journal.dawns()
    if dawns and dawns[-1].ended is None:
        return None
    best = incumbent(history)
    unfinished = {one.number for one in history if not one.settled or (one.status is Status.KEEP and unaudited(one))}
    return frozenset(unfinished | ({best.number} if best is not None else set()))


def _check_goes_on_without(journal: Journal) -> None:
    """Raise NightError where a night needs weights for its next step: of a dawn, or of a run that has to be audited."""
    night, dawns = journal.night(), journal.dawns()
    if dawns and dawns[-1].ended is None:
        go_on = typed("confirm", night.tag)
        raise NightError(f"the dawn of night {night.tag} needs its weights until it has ended; go on with: {go_on}")
    for attempt in journal.attempts():
        if unaudited(attempt) and (not attempt.settled or attempt.status is Status.KEEP):
            raise NightError(
                f"attempt {attempt.number} of night {night.tag} needs its weights until it is audited: go on with "
                f"{typed('run', '--tag', night.tag)}, end it with {typed('stop')}, and pack it then"
            )


def left_out(needed: frozenset[int] | None, *, any_weights: bool) -> Callable[[PurePosixPath], bool]:
    """Return whether a path of a night's folder stays behind: temporary files, and weights that no next step needs.

    needed: the attempts whose weights and losses come along, if any do; None: all of them.
    """

    def is_left_out(path: PurePosixPath) -> bool:
        above, *below = path.parts
        if path.name == "__pycache__" or (above == "runs" and len(below) == 3 and below[2] == TMP):
            return True
        if above not in ("runs", "replays") or not below:
            return False
        if not any_weights:
            return path.name == NAME or bool(LOSSES.fullmatch(path.name))
        if needed is None:
            return False
        named = OF_ATTEMPT.fullmatch(below[0]) or OF_REPLAY.fullmatch(below[0])
        number = int(below[0].partition("-")[0]) if named else None
        if LOSSES.fullmatch(path.name) and len(below) == 2:  # attempt 0's serve the audits of all others
            return number not in needed | {0}
        return path.name == NAME and number not in needed

    return is_left_out


# ---- unpack ----------------------------------------------------------------------------------------------------------


def unpack(file: str, /) -> None:
    """Put a night that was packed beside the nights of this repository.

    Of one that was packed away here, its TAG is enough: it comes back as it was. One that comes from another machine
    can go on here if the device has the same name and the same corpus is here, which is found by its hashes. Nothing
    that is here is overwritten.

    Args:
        file: that nightshift pack has written, or the TAG of a night that was packed away
    """
    Repo.containing(Path.cwd())  # a night can arrive where no script is, and only the repository is missed
    place = Place.of(SCRIPT)
    with only_night(place.repo.common_dir):
        path = Path(file).expanduser()
        if valid_tag(file) and not path.exists():
            _bring_back(place, file)
        else:
            _bring(place, path)


def _bring_back(place: Place, tag: str) -> None:
    sweep_aside(place)
    file = place.packed(tag)
    check_plain(file)
    if not file.exists():
        there = f"night {tag} is here, and not packed" if place.journal(tag).exists() else f"there is no {file}"
        raise NightError(f"{there}; see the nights with: {typed('nights')}")
    with _working(f"unpacking night {tag}"):
        found = away.unpack(place, tag)
    for ref in found.moved:
        print(f"{ref} leads to another commit by now, and stays; it was {found.contents.refs[ref][:7]}")
    if found.lost is not None:
        print(f"its commits could not be brought back ({found.lost}); the journal has its scripts")
    if asks := _outside(place, tag):
        print(f"it goes on with {asks}: where the file is somebody else's, look at that first")
    print(f"unpacked night {tag}: {size_words(found.contents.all_bytes)}; go on with: {typed('run', '--tag', tag)}")


def _bring(place: Place, file: Path) -> None:
    program = place.script_path.parent / moving.PROGRAM
    had_program = program.exists()
    with _working(f"unpacking {file}"):
        arrived = moving.unpack(place, file, at_home)
    night = arrived.night
    print(f"unpacked night {night.tag} from {file}: {size_words(arrived.contents.all_bytes)}")
    if arrived.other_program is not None:
        print(f"the program.md here is another than the night's, and stays; the night's is {arrived.other_program}")
    elif program.exists() and not had_program:
        print(f"{program} is the night's, and is told to all who propose edits here")
    elsewhere = _other_device(night)
    if elsewhere is not None:
        there = harmless(night.device)
        print(f"night {night.tag} ran on {there}, this is {elsewhere}: it can be read and replayed here, and not go on")
    elif not arrived.has_corpus:
        print(missing_corpus(night, place.folder(night.tag)))
    asks = _outside(place, night.tag)
    print(
        f"run and replay execute programs that are in the file{f', and with {asks}' if asks else ''}, outside of the "
        f"sandbox: where the file is somebody else's, look at {place.folder(night.tag) / 'fixed'} first"
    )
    if elsewhere is None:
        print(f"go on with: {typed('run', '--tag', night.tag)}")


def _outside(place: Place, tag: str) -> str:
    """Name the options of a night by which programs run with the user's rights, or servers get a key."""
    with Journal.read(place.journal(tag)) as journal:
        terms = journal.night().terms
    named = {name: getattr(terms, name) for name in ("agent", "llm", "llm_url")}
    named |= {"sandbox": terms.sandbox} if terms.sandbox == SANDBOXES[0] else {}
    return harmless(shlex.join(as_words({name: value for name, value in named.items() if value is not None})))


def _other_device(night: Night) -> str | None:
    """Return the name of this device where the night cannot go on here; None also where `run` has to find out.

    Of a night whose workers have some cores each, only the processor is compared, and of one on a cluster nothing.
    """
    hardware.tune()
    here, terms = hardware.device_name(), night.terms
    if terms.pool != "local":
        return None
    names = here, night.device
    is_same = len({name.rpartition(" (")[0] if terms.cores_each else name for name in names}) == 1
    return None if is_same else here


def _working(sentence: str) -> AbstractContextManager[object]:
    console = Console(stderr=True)
    return console.status(sentence) if console.is_terminal else nullcontext()
