"""A night on its way to another machine: nightshift pack writes a copy of it, nightshift unpack goes on from one."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.cli.housekeeping.archive import outside, working
from agent.cli.housekeeping.nights import row_of, size_words, summary_of
from agent.cli.housekeeping.weights import OF_ATTEMPT, OF_REPLAY, check_goes_on_without, needed_to_go_on
from agent.cli.reading.which import known_tag
from agent.cli.words.options import SCRIPT
from agent.cli.words.parser import Subcommand
from agent.experiment import Night
from agent.git import Repo
from agent.invocation import typed
from agent.model.weights import NAME
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.terms import Terms
from agent.sandbox.environment import TMP
from agent.text import counted, harmless

PACK_TEXT = (
    "Write a copy of a night into one file, to go on with it on another machine: nightshift unpack puts it beside the "
    "nights there. The file holds journal, commits with all history below them, logs, curves, notes, program.md, and "
    "the weights that --weights names. The night also stays here. It may not be running."
)
UNPACK_TEXT = (
    "Put a night from a file of nightshift pack beside the nights of this repository. It can go on here if the device "
    "has the same name and the same corpus is here, which is found by its hashes. Nothing that is here is overwritten."
)
LOSSES = re.compile(r".*\.f32")
WEIGHTS = ("best", "all", "none")  # that a packed night can bring along


@dataclass(frozen=True, slots=True)
class PackOptions:
    tag: str | None
    file: Path | None
    weights: str  # one of WEIGHTS


def pack(options: PackOptions) -> int:
    from agent.archive import moving

    place = Place.of(SCRIPT)
    with only_night(place.repo.common_dir):
        tag = known_tag(place, options.tag)
        file = (options.file or Path(f"nightshift-{tag}.tar.gz")).expanduser()
        with Journal.read(place.journal(tag)) as journal:
            summary = summary_of(row_of(journal))
            if options.weights == "none":
                check_goes_on_without(journal)
            needed = needed_to_go_on(journal) if options.weights == "best" else None
        with working(f"packing night {tag}"):
            is_left_out = left_out(needed, any_weights=options.weights != "none")
            contents = moving.pack(place, tag, file, summary, is_left_out)
    size, refs = size_words(file.stat().st_size), counted(len(contents.refs), "ref")
    print(f"packed night {tag} into {file}: {size}, {counted(len(contents.files), 'file')} with {refs}")
    print(f"it stays here, too: go on in one place alone; in the other repository: {typed('unpack', file.name)}")
    return 0


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


@dataclass(frozen=True, slots=True)
class UnpackOptions:
    file: Path


def unpack(options: UnpackOptions) -> int:
    from agent.archive import moving
    from agent.night.opening import at_home, missing_corpus

    Repo.containing(Path.cwd())  # a night can arrive where no script is, and only the repository is missed
    place, file = Place.of(SCRIPT), options.file.expanduser()
    program = place.script_path.parent / moving.PROGRAM
    with only_night(place.repo.common_dir):
        had_program = program.exists()
        with working(f"unpacking {file}"):
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
    print(
        f"run and replay execute programs that are in the file{_named(outside(place, night.tag))}, outside of the "
        f"sandbox: where the file is somebody else's, look at {place.folder(night.tag) / 'fixed'} first"
    )
    if elsewhere is None:
        print(f"go on with: {typed('run', '--tag', night.tag)}")
    return 0


def _named(options: str) -> str:
    return f", and with {options}" if options else ""


def _other_device(night: Night) -> str | None:
    """Return the name of this device where the night cannot go on here; None also where `run` has to find out.

    Of a night whose workers have some cores each, only the processor is compared, and of one on a cluster nothing.
    """
    from agent.lab import hardware

    hardware.tune()
    here, terms = hardware.device_name(), Terms.from_json(night.terms)
    if terms.pool != "local":
        return None
    names = here, night.device
    is_same = len({name.rpartition(" (")[0] if terms.cores_each else name for name in names}) == 1
    return None if is_same else here


def _pack_words(words: argparse.ArgumentParser) -> None:
    words.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="to write; it must not exist (default: nightshift-TAG.tar.gz)",
    )
    words.add_argument("--tag", metavar="TAG", help="the night's name (default: the latest)")
    words.add_argument(
        "--weights",
        choices=WEIGHTS,
        default="best",
        help="of which attempts: the best, all that have some, or none, so that the file is small (default: best)",
    )


def _unpack_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("file", metavar="FILE", type=Path, help="that nightshift pack has written")


def _pack_again(options: PackOptions, tag: str | None) -> str:
    return typed("pack", *([str(options.file)] if options.file is not None else []))


def _unpack_again(options: UnpackOptions, tag: str | None) -> str:
    return typed("unpack", str(options.file))


PACK = Subcommand(
    "pack", "write a copy of a night into one file, for another machine", PackOptions, pack, _pack_words, PACK_TEXT,
    resume=_pack_again,
)  # fmt: skip
UNPACK = Subcommand(
    "unpack", "put a night that was packed elsewhere beside those here", UnpackOptions, unpack, _unpack_words,
    UNPACK_TEXT, resume=_unpack_again,
)  # fmt: skip
