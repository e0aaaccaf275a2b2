"""All nights that are known here: nightshift nights."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from agent.cli.answer import Answer
from agent.cli.find import none_yet, place_meant
from agent.cli.status import read_overview
from agent.errors import NightError
from agent.experiment import Status
from agent.git import valid_tag
from agent.invocation import typed
from agent.judging.intervals import Interval
from agent.night.lock import holder
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import Row, read_rows
from agent.records.shipped import DAMAGED
from agent.text import budget
from agent.view.facts.json import plain
from agent.view.facts.overview import Overview, overview_of
from agent.view.facts.records import of_record, of_rows
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


class Stage(StrEnum):
    """Say where a night is: what can still be done with it follows from that."""

    RUNNING = "running"
    OPEN = "can go on"
    ARCHIVED = "archived"
    SHIPPED = "shipped"  # its record alone is here
    ROWS = "rows only"  # in results.tsv
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class NightRow:
    """Sum up one night; what is not known of it is None."""

    tag: str
    state: Stage
    started: str = ""
    device: str | None = None
    budget_s: float | None = None
    attempts: int | None = None  # attempt 0 included
    kept: int | None = None
    best_attempt: int | None = None
    val_bpb: float | None = None  # of the best
    honest: Interval | None = None  # gain, as dawn has measured it
    bytes: int | None = None  # on disk: its folder, its packed file or its record
    damage: str | None = None  # why it cannot be read

    @classmethod
    def of(cls, now: Overview, state: Stage, size: int | None) -> "NightRow":
        return cls(
            tag=now.tag,
            state=state,
            started=now.started,
            device=now.device or None,
            budget_s=now.budget_s or None,
            attempts=now.attempts,
            kept=now.keep,
            best_attempt=now.best.number if now.best is not None else None,
            val_bpb=now.best.val_bpb if now.best is not None else None,
            honest=now.dawn.honest if now.dawn is not None else None,
            bytes=size,
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
    return Answer({"nights": [plain(one) for one in found]}, lambda: _show(found))


def _show(found: list[NightRow]) -> None:
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


def _cells(one: NightRow) -> tuple[str, ...]:
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


def all_nights(place: Place) -> list[NightRow]:
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


def summary_of(one: NightRow) -> dict[str, Any]:
    """Return what a packed night says of itself: the facts of its row."""
    facts: dict[str, Any] = plain(one)
    return {name: value for name, value in facts.items() if name not in ("state", "bytes", "damage")}


def _of_journal(path: Path) -> NightRow:
    folder = path.parent
    try:
        with Journal.read(path) as journal:
            return replace(row_of(journal), bytes=size_of(folder), tag=folder.name)
    except (NightError, OSError) as error:
        return NightRow(folder.name, Stage.DAMAGED, bytes=size_of(folder), damage=str(error))


def row_of(journal: Journal) -> NightRow:
    """Sum up a night from its journal; its gain has no interval."""
    return NightRow.of(read_overview(journal, with_noise=False), Stage.OPEN, None)


def _packed(place: Place) -> Iterator[NightRow]:
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
                told = msgspec.convert({**contents.summary, "state": Stage.ARCHIVED}, NightRow)
                yield replace(told, tag=tag, state=Stage.ARCHIVED, started=contents.started, bytes=size)
            except (NightError, *DAMAGED) as error:
                yield NightRow(tag, Stage.DAMAGED, bytes=size, damage=str(error))


def _shipped(place: Place) -> Iterator[NightRow]:
    for folder in place.shipped.glob("*/"):
        if valid_tag(folder.name):
            try:
                now = overview_of(of_record(folder))
                yield NightRow.of(now, Stage.SHIPPED, size_of(folder))
            except DAMAGED as error:
                yield NightRow(folder.name, Stage.DAMAGED, bytes=size_of(folder), damage=str(error))


def _of_rows(tag: str, rows: list[Row]) -> NightRow:
    facts = of_rows(tag, rows)
    scores = [one.val_bpb for one in facts.attempts if one.status == Status.KEEP and one.val_bpb is not None]
    row = NightRow.of(overview_of(facts), Stage.ROWS, None)
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
