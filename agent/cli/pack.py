"""Write a night into one file, for another machine or to make room, and read it: nightshift pack, nightshift unpack."""

import re
from pathlib import Path, PurePosixPath
from typing import Literal

from rich.filesize import decimal

from agent import archive
from agent.cli.find import known_tag
from agent.cli.lists import listed
from agent.cli.options import SCRIPT, UserPath, file_at
from agent.errors import NightError
from agent.experiment import Status
from agent.git import Repo, valid_tag
from agent.invocation import typed
from agent.lab.hardware import user_path
from agent.night.lock import no_night, only_night
from agent.night.state import unaudited
from agent.proposers.notes import NOTES, read_notes
from agent.records.options import as_words
from agent.records.place import Place, read_night
from agent.records.record import Record
from agent.records.results import write_results
from agent.runs.runner import WEIGHTS
from agent.sandbox.environment import TMP
from agent.text import counted
from agent.view.answer import plain
from agent.view.screen import print_folded, print_lines

LOSSES = ".f32"
OF_ATTEMPT = re.compile(r"runs/(\d+)/")  # a path in the folder of an attempt's runs
WeightsOf = Literal["best", "all", "none"]


def pack(
    tag: str | None = None, /, *, out: UserPath | None = None, weights: WeightsOf | None = None, remove: bool = False
) -> None:
    """Pack a night into one file, to resume it on another machine, or to make room.

    nightshift unpack restores it there. The file holds journal, commits with all history below them, logs, curves,
    notes, program.md, and the weights that --weights names. The night also stays here. It must not be running.

    With --remove its folder becomes the file experiments/nights/TAG.tar.gz, with all weights unless others are named.
    The file is read back before the folder is deleted. The night's rows stay in results.tsv.

    Args:
        tag: the night (default: the latest; --remove needs it named)
        out: the file to write, which must not exist, or a folder for it (default: nightshift-TAG.tar.gz)
        weights: pack the weights of the best attempt, of all, or of none; those that still have to be audited are
            packed in any case (default: best)
        remove: pack the night away, beside the other nights, and delete its folder
    """
    place = Place.of(SCRIPT)
    if remove and (tag is None or out is not None):
        own = typed("pack", tag or "TAG", "--remove")
        raise NightError(f"--remove deletes a night's folder: name the night, and no --out, as in: {own}")
    if tag is not None and remove and place.packed(tag).exists() and not place.journal(tag).exists():
        with only_night(place.repo.common_dir), archive.work_folder(place):  # deletes what a killed call left
            print_folded([f"night {tag} is packed in {place.packed(tag)}; unpack it with: {typed('unpack', tag)}"])
        return
    tag = known_tag(place, tag)
    with (only_night if remove else no_night)(place.repo.common_dir):  # no_night writes nothing
        usual = Path(f"nightshift-{tag}.tar.gz")
        file = place.packed(tag) if remove else file_at(out, usual)
        is_left_out = left_out(read_night(place, tag), weights or ("all" if remove else "best"))
        summary = plain(listed(place, tag))
        if remove:
            write_results(place)  # the rows stay when the journal is away
        print_lines([f"packing night {tag} …"])
        contents = archive.pack(place, tag, file, summary, is_left_out, remove=remove)
    advice = f"unpack it with: {typed('unpack', tag if remove else file.name)}"
    if not remove:
        advice = f"it stays here, too: go on in one place alone; in the other repository {advice}"
    size = decimal(file.stat().st_size)
    print_folded([f"packed night {tag} into {file}: {size} with {counted(len(contents.refs), 'ref')}", advice])


def left_out(record: Record, weights: WeightsOf) -> archive.LeftOut:
    """Return whether a path of a night's folder stays behind: temporary files, and weights that are not asked for."""
    needed = None if weights == "all" else _needed(record, with_best=weights == "best")

    def is_left_out(path: PurePosixPath) -> bool:
        if path.name == "__pycache__" or (path.name == TMP and path.parts[0] == "runs" and len(path.parts) == 4):
            return True
        of_attempt = OF_ATTEMPT.match(str(path))
        if of_attempt is None or needed is None or (path.name != Path(WEIGHTS).name and path.suffix != LOSSES):
            return False
        number = int(of_attempt[1])
        # Audits of all other attempts need the losses of attempt 0.
        serves_audits = number == 0 and path.suffix == LOSSES and weights == "best"
        return number not in needed and not serves_audits

    return is_left_out


def _needed(record: Record, *, with_best: bool) -> frozenset[int]:
    """Return the attempts whose weights a night needs where it goes on: the best, and those to be audited still.

    A score is to be audited where its attempt may count: without a verdict, kept, or a question of the confirmation.
    """
    # 0: the night, without confirmations
    not_over = (0, *(confirmation.number for confirmation in record.confirmations[-1:] if confirmation.ended is None))
    best = record.best if with_best else None
    may_count = (each for each in record.attempts if not each.settled or each.status is Status.KEEP or not each.is_idea)
    needed = {
        attempt.number
        for attempt in may_count
        if any(any(unaudited(attempt, confirmation)) for confirmation in not_over)
    }
    return frozenset(needed if best is None else {*needed, best.number})


def unpack(file: str, /) -> None:
    """Restore a packed night beside the nights of this repository.

    For a night that was packed away here, give its TAG. The file stays. A night from another machine can go on here if
    the device has the same name and the same corpus is here, which is found by its hashes. No file here is overwritten.
    Nothing from the file runs outside of a sandbox: the night can only go on if its prepare.py and nightshift's own
    files equal the installed ones. Name a coding agent or a model again.

    Args:
        file: a file that nightshift pack has written, or the TAG of a night that was packed away
    """
    Repo.containing(Path.cwd())  # a night can arrive where no script is, and only the repository is missed
    place, path = Place.of(SCRIPT), user_path(file)
    if valid_tag(file) and not path.exists():
        path = place.packed(file)
        if not path.exists():
            missing = f"there is no file {file}, and no night of that name is packed away here"
            problem = f"night {file} is here, and not packed" if place.journal(file).exists() else missing
            raise NightError(f"{problem}; see the nights with: {typed('nights')}")
    with only_night(place.repo.common_dir):
        print_folded([f"unpacking {path} …"])
        unpacked = archive.unpack(place, path)
    night = unpacked.night
    lines = [f"unpacked night {night.tag} from {path}", *unpacked.notes]
    if read_notes(place.folder(night.tag)):  # an agent that they instruct has the user's rights
        notes = place.folder(night.tag) / NOTES
        lines.append(f"{notes} is told to all who propose edits; if it may be somebody else's, read it first")
    if unpacked.obstacle is not None:
        lines.append(f"night {night.tag} can be read here, and not go on: {unpacked.obstacle}")
    else:
        words = as_words(unpacked.asked_again)
        if words:
            lines.append("give the programs and servers that it names again, if the file is not somebody else's")
        lines.append(f"go on with: {typed('run', '--tag', night.tag, *words)}")
    print_folded(lines)
