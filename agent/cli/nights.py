"""All nights that are known here: nightshift nights."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agent.cli.answer import Answer
from agent.cli.find import none_yet, place_meant
from agent.errors import NightError
from agent.experiment import Status
from agent.git import valid_tag
from agent.invocation import typed
from agent.night.lock import holder
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import of_rows
from agent.records.record import of_journal
from agent.records.results import Row, read_rows
from agent.records.shipped import DAMAGED, of_folder
from agent.records.summary import summary_of
from agent.text import budget
from agent.view.answer import ListedNight, NightsAnswer, Stage, plain
from agent.view.table import Column, lines

UNITS = ("B", "kB", "MB", "GB", "TB")
COLUMNS = (
    Column("night"),
    Column("state"),
    Column("attempts", right=True, rank=3),
    Column("kept", right=True, rank=4),
    Column("best_bpb", right=True),
    Column("honest gain [95 %]", rank=1),
    Column("size", right=True, rank=2),
    Column("a run", right=True, rank=5),
    Column("device", rank=6, least=16),
)


def nights() -> Answer:
    """List all nights that are known here, the oldest first.

    Those with a journal, those that are packed away, those that came with the repository as a record, and those of
    which results.tsv alone still knows.
    """
    place = place_meant()
    found = all_nights(place)
    if not found:
        raise none_yet(place, nights=[])
    return Answer(plain(NightsAnswer(tuple(found))), lambda: _show(found))


def _show(found: list[ListedNight]) -> None:
    from agent.view.screen import print_folded, terminal_width

    for line in lines(COLUMNS, map(_cells, found), terminal_width()):
        print(line)
    open_ones = [one for one in found if one.state is Stage.OPEN]
    packed = [one for one in found if one.state is Stage.ARCHIVED]
    hints = [f"go on with {open_ones[-1].tag}: {typed('run', '--tag', open_ones[-1].tag)}"] if open_ones else []
    hints += [f"pack one away: {typed('pack', open_ones[0].tag, '--remove')}"] if len(open_ones) > 1 else []
    hints += [f"unpack one: {typed('unpack', packed[-1].tag)}"] if packed else []
    hints += [f"{one.tag} is damaged: {one.damage}" for one in found if one.damage is not None]
    print_folded(hints)


def _cells(one: ListedNight) -> tuple[str, ...]:
    honest = one.honest
    return (
        one.tag,
        one.state,
        "" if one.attempts is None else f"{one.attempts:,}",
        "" if one.kept is None else f"{one.kept:,}",
        "" if one.val_bpb is None else f"{one.val_bpb:.6f}",
        "" if honest is None else f"{honest.mean_bpb:.4f} [{honest.low_bpb:.4f}, {honest.high_bpb:.4f}]",
        "" if one.bytes is None else size_words(one.bytes),
        "" if one.budget_s is None else budget(one.budget_s),
        one.device or "",
    )


def size_words(size: float) -> str:
    """Return a size on disk, as in 312 kB, 1.4 GB."""
    for unit in UNITS[:-1]:
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit in UNITS[:2] or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {UNITS[-1]}"


# ---- gather ----------------------------------------------------------------------------------------------------------


def all_nights(place: Place) -> list[ListedNight]:
    """Return all nights that are known here, the oldest first."""
    rows: dict[str, list[Row]] = {}
    for row in read_rows(place.ledger):
        rows.setdefault(row.get("tag", ""), []).append(row)
    who = holder(place.repo.common_dir)
    found = {tag: _of_rows(tag, told) for tag, told in rows.items() if valid_tag(tag)}
    found |= {one.tag: one for one in _shipped(place)}
    found |= {one.tag: one for one in _packed(place)}
    for path in place.nights.glob("*/journal.sqlite"):
        one = _of_journal(path)
        is_running = who is not None and who.tag == one.tag and one.state is Stage.OPEN
        found[one.tag] = replace(one, state=Stage.RUNNING) if is_running else one
    return sorted(found.values(), key=lambda one: (one.started, one.tag))


def told_of(one: ListedNight) -> dict[str, Any]:
    """Return what a packed night says of itself: the facts of its row."""
    facts: dict[str, Any] = plain(one)
    return {name: value for name, value in facts.items() if name not in ("state", "bytes", "damage")}


def _of_journal(path: Path) -> ListedNight:
    folder = path.parent
    try:
        with Journal.read(path) as journal:
            return replace(row_of(journal), bytes=size_of(folder), tag=folder.name)
    except (NightError, OSError) as error:
        return ListedNight(folder.name, Stage.DAMAGED, bytes=size_of(folder), damage=str(error))


def row_of(journal: Journal) -> ListedNight:
    """Sum up a night from its journal; its gain has no interval."""
    return ListedNight.of(summary_of(replace(of_journal(journal), noise=None)), Stage.OPEN, None)


def _packed(place: Place) -> Iterator[ListedNight]:
    ending = place.packed("").name
    for file in sorted(place.nights.glob(f"[!.]*{ending}")):
        from agent.archive.unpack import read_contents  # rarely needed

        tag = file.name.removesuffix(ending)
        if not valid_tag(tag):
            continue
        with suppress(OSError):  # unpacked meanwhile
            size = file.stat().st_size
            try:
                contents = read_contents(file)
                told = msgspec.convert({**contents.summary, "state": Stage.ARCHIVED}, ListedNight)
                yield replace(told, tag=tag, state=Stage.ARCHIVED, started=contents.started, bytes=size)
            except (NightError, *DAMAGED) as error:
                yield ListedNight(tag, Stage.DAMAGED, bytes=size, damage=str(error))


def _shipped(place: Place) -> Iterator[ListedNight]:
    for folder in place.shipped.glob("*/"):
        if valid_tag(folder.name):
            try:
                now = summary_of(of_folder(folder))
                yield ListedNight.of(now, Stage.SHIPPED, size_of(folder))
            except DAMAGED as error:
                yield ListedNight(folder.name, Stage.DAMAGED, bytes=size_of(folder), damage=str(error))


def _of_rows(tag: str, rows: list[Row]) -> ListedNight:
    facts = of_rows(tag, rows)
    scores = [one.val_bpb for one in facts.attempts if one.status == Status.KEEP and one.val_bpb is not None]
    row = ListedNight.of(summary_of(facts), Stage.ROWS, None)
    return row if row.val_bpb is not None else replace(row, val_bpb=min(scores, default=None))


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as inside:  # a running night deletes folders
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total
