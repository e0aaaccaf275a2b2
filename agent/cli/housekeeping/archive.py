"""Space on the disk: nightshift archive packs a night away, unpacks it, or deletes weights that it hardly needs."""

import argparse
import shlex
from contextlib import nullcontext
from dataclasses import dataclass

from rich.console import Console

from agent.cli.housekeeping.nights import row_of, size_of, size_words, summary_of
from agent.cli.housekeeping.weights import Prunable, find_prunable
from agent.cli.reading.which import known_tag
from agent.cli.words.options import SCRIPT
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.files import check_plain, remove
from agent.git import valid_tag
from agent.invocation import typed
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import Ledger
from agent.records.terms import SANDBOXES, Terms, as_words
from agent.text import counted, harmless

ARCHIVE_TEXT = (
    "Pack a night away: its folder becomes one file, experiments/nights/TAG.tar.gz, with journal, logs, curves, "
    "weights, and its commits as a git bundle. The file is read back before the folder is deleted. The night's rows "
    "stay in results.tsv."
)
MOST_SHOWN = 12  # runs whose weights are named


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    tag: str
    unpack: bool
    prune_weights: bool
    dry_run: bool


def archive(options: ArchiveOptions) -> int:
    from agent.archive.steps import sweep_aside

    place = Place.of(SCRIPT)
    if not valid_tag(options.tag):
        raise NightError(f"{options.tag!r} is no tag; see the nights with: {typed('nights')}")
    with only_night(place.repo.common_dir):
        sweep_aside(place)  # a call that was killed may have had only that left to do
        if options.unpack:
            _unpack(place, options)
        elif options.prune_weights:
            _prune(place, options)
        else:
            _pack(place, options)
    return 0


# ---- pack and unpack -------------------------------------------------------------------------------------------------


def _pack(place: Place, options: ArchiveOptions) -> None:
    from agent.archive.away import pack

    tag = options.tag
    folder, file = place.folder(tag), place.packed(tag)
    if file.exists() and not place.journal(tag).exists():
        print(f"night {tag} is packed in {file}; {_unpack_with(tag)}")
        return
    known_tag(place, tag)
    with Journal.read(place.journal(tag)) as journal:
        summary = summary_of(row_of(journal))
    before = size_of(folder)
    if options.dry_run:
        print(f"night {tag}, {size_words(before)}, would become {file}, and its folder would be deleted")
        return
    Ledger(place).write()  # whose rows stay when the journal is away
    with working(f"packing night {tag}: {size_words(before)}"):
        contents = pack(place, tag, summary)
    after = file.stat().st_size
    commits = f", with {counted(len(contents.refs), 'ref')}" if contents.refs else ""
    print(f"packed night {tag} into {file}: {counted(len(contents.files), 'file')}{commits}")
    print(f"{size_words(before)} became {size_words(after)}; {_unpack_with(tag)}")


def _unpack_with(tag: str) -> str:
    return f"unpack it with: {typed('archive', '--unpack', '--tag', tag)}"


def _unpack(place: Place, options: ArchiveOptions) -> None:
    from agent.archive.away import unpack
    from agent.archive.reading import read_contents

    tag = options.tag
    file = place.packed(tag)
    check_plain(file)
    if not file.exists():
        there = f"night {tag} is here, and not packed" if place.journal(tag).exists() else f"there is no {file}"
        raise NightError(f"{there}; see the nights with: {typed('nights')}")
    if options.dry_run:
        size = size_words(read_contents(file).all_bytes)
        print(f"night {tag} would take {size} in {place.folder(tag)}, and {file} would be deleted")
        return
    with working(f"unpacking night {tag}"):
        found = unpack(place, tag)
    for ref in found.moved:
        print(f"{ref} leads to another commit by now, and stays; it was {found.contents.refs[ref][:7]}")
    if found.lost is not None:
        print(f"its commits could not be brought back ({found.lost}); the journal has its scripts")
    asks = outside(place, tag)
    if asks:
        print(f"it goes on with {asks}: where the file is somebody else's, look at that first")
    print(f"unpacked night {tag}: {size_words(found.contents.all_bytes)}; go on with: {typed('run', '--tag', tag)}")


def outside(place: Place, tag: str) -> str:
    """Name the options of a night by which programs run with the user's rights, or servers get a key."""
    with Journal.read(place.journal(tag)) as journal:
        terms = Terms.from_json(journal.night().terms)
    named = {name: getattr(terms, name) for name in ("agent", "llm", "llm_url")}
    named |= {"sandbox": terms.sandbox} if terms.sandbox == SANDBOXES[0] else {}
    return harmless(shlex.join(as_words({name: value for name, value in named.items() if value is not None})))


def working(sentence: str) -> "nullcontext[None]":
    console = Console(stderr=True)
    return console.status(sentence) if console.is_terminal else nullcontext()  # type: ignore[return-value]


# ---- weights ---------------------------------------------------------------------------------------------------------


def _prune(place: Place, options: ArchiveOptions) -> None:
    tag = known_tag(place, options.tag)
    found = find_prunable(place, tag)
    size = sum(one.bytes for one in found)
    if not found:
        print(f"night {tag} has no weights to delete: only those of attempt 0 and of its best are there, if any")
        return
    for one in found[:MOST_SHOWN]:
        print(f"  {one.path.relative_to(place.folder(tag))}: {size_words(one.bytes)}")
    if len(found) > MOST_SHOWN:
        print(f"  and {len(found) - MOST_SHOWN} more")
    if options.dry_run:
        print(f"would free {size_words(size)}; logs, curves and the journal would stay")
        return
    for one in found:
        _delete(one)
    again = typed("replay", "N", "--tag", tag)
    print(f"freed {size_words(size)}; logs, curves and the journal stay; weights are made again with: {again}")


def _delete(one: Prunable) -> None:
    if one.path.is_dir() and not one.path.is_symlink():
        remove(one.path)
    else:
        one.path.unlink(missing_ok=True)


def _archive_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", required=True, metavar="TAG", help="of this night")
    what = words.add_mutually_exclusive_group()
    what.add_argument("--unpack", action="store_true", help="put a night that was packed away back as it was")
    what.add_argument(
        "--prune-weights",
        action="store_true",
        help="pack nothing; delete weights and caches of all runs but attempt 0's and the best's",
    )
    words.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _again(options: ArchiveOptions, tag: str | None) -> str:
    return typed("archive", "--tag", options.tag, *(["--unpack"] if options.unpack else []))


ARCHIVE = Subcommand(
    "archive", "pack a night away, unpack it, or free its space", ArchiveOptions, archive, _archive_words, ARCHIVE_TEXT,
    resume=_again,
)  # fmt: skip
