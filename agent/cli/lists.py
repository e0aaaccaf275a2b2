"""List the rows of results.tsv, and all nights: nightshift results, nightshift nights."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from agent.cli.find import holder_here, is_known, no_night, none_yet, packed_tags, place_meant
from agent.errors import NightError, NothingYet
from agent.git import valid_tag
from agent.invocation import typed
from agent.night.lock import is_held
from agent.records import results as results_tsv
from agent.records.place import Place, known_tags, read_night
from agent.records.record import Record
from agent.records.shipped import DAMAGED
from agent.records.summary import summary_of
from agent.text import SCORE_DECIMALS
from agent.view import terminal
from agent.view.answer import Answer, ListedNight, NightsAnswer, Stage
from agent.view.screen import Column, print_folded, print_lines, table_lines, terminal_width
from agent.view.words import PAGE_DECIMALS, Form

NUMBERS = frozenset({
    *("attempt", "seeds", "confirmation_seeds", "val_bpb", "val_bpb_std", "gain_bpb", "sure"),
    *("confirmation_bpb", "holdout_bpb", "steps", "speed"),
    *("memory_gb", "tokens_M", "params_M", "train_s", "wall_s"),
})  # fmt: skip
NIGHT_COLUMNS = (
    Column("night"),
    Column("state"),
    Column("attempts", right=True, rank=3),
    Column("best", right=True),
    Column("honest gain [95 %]", rank=1),
    Column("size", right=True, rank=2),
    Column("device", rank=6, least=16),
)

# ---- attempts -------------------------------------------------------------------------------------------------------


@contextmanager
def _empty(name: str) -> Iterator[None]:
    """Have the answer name an empty list where there is nothing yet."""
    try:
        yield
    except NothingYet as error:
        error.facts.setdefault(name, [])
        raise


@_empty("rows")
def results(tag: str | None = None, /, *, all: bool = False) -> Answer:
    """Print results.tsv as a table.

    Args:
        tag: show this night only (default: the latest)
        all: show every night, also those that came with the repository
    """
    place = place_meant(tag)
    tags = place.tags()
    # a running night writes it itself: an older rendering must not overwrite the newer
    is_read_only = not tags or is_held(place.repo.common_dir)
    text = results_tsv.read_results(place.results) if is_read_only else results_tsv.write_results(place, to_read=True)
    rows = results_tsv.rows_in(text)
    shown = None if all else tag or next(iter(tags[::-1]), None)
    rows = [row for row in rows if shown in (None, row.get("tag"))]
    if not rows:
        if tag is not None and tag not in tags:
            if is_known(place, tag):
                raise NothingYet(f"results.tsv has no row of night {tag}; see: {typed('report', tag)}")
            raise no_night(place, tag, sorted(results_tsv.tags_in(place.results)))
        if not tags:
            raise none_yet(place)
        if shown in tags:
            read_night(place, shown)  # raises an error if the journal is damaged, or a copy of another night's
        raise NothingYet(f"no results yet; see: {typed('status')}, {typed('results', '--all')}")
    facts = {"tag": shown, "rows": [typed_row(row) for row in rows]}
    tags_shown = {row.get("tag", "") for row in rows}
    return Answer(
        facts, lambda: print_folded(terminal.results_lines(rows, terminal_width(), _records(place, tags_shown)))
    )


def _records(place: Place, tags: Collection[str]) -> dict[str, Record]:
    """Return the nights of these tags of which more than rows is here, and can be read."""
    records = {}
    for tag in known_tags(place):
        if tag in tags:
            with suppress(NightError, OSError, *DAMAGED):
                records[tag] = read_night(place, tag)
    return records


def typed_row(row: results_tsv.Row) -> dict[str, object]:
    """Return a row with numbers for its columns of numbers, and None for an empty cell."""
    return {column: _value(column, row.get(column, "")) for column in results_tsv.COLUMNS}


def _value(column: str, cell: str) -> str | float | None:
    if column not in NUMBERS:
        return cell or None
    return int(cell) if cell.isdecimal() else results_tsv.number_of(cell)


# ---- nights ---------------------------------------------------------------------------------------------------------


@_empty("nights")
def nights() -> Answer:
    """List all nights that are known here, the oldest first.

    Those with a journal, those that are packed away, and those that came with the repository as a record.
    """
    place = place_meant()
    listed = all_nights(place)
    if not listed:
        raise none_yet(place)
    return Answer(NightsAnswer(tuple(listed)), lambda: _show(listed))


def _show(listed: list[ListedNight]) -> None:
    print_lines(table_lines(NIGHT_COLUMNS, map(_cells, listed), terminal_width()))
    last = {night.state: night.tag for night in listed}
    more = [f"go on with {last[Stage.OPEN]}: {typed('run', '--tag', last[Stage.OPEN])}"] if Stage.OPEN in last else []
    more += [f"unpack one: {typed('unpack', last[Stage.ARCHIVED])}"] if Stage.ARCHIVED in last else []
    print_folded([*more, *(f"{night.tag} is damaged: {night.damage}" for night in listed if night.damage is not None)])


def _cells(night: ListedNight) -> tuple[str, ...]:
    from rich.filesize import decimal

    honest, form = night.honest, Form(None if night.metric else SCORE_DECIMALS)
    return (
        night.tag,
        night.state,
        "" if night.attempts is None else f"{night.attempts:,}",
        " ".join(filter(None, ((night.metric or "").removeprefix("-"), form.number(night.val_bpb)))),
        "" if honest is None else Form(None if night.metric else PAGE_DECIMALS).interval(honest, ""),
        "" if night.bytes is None else decimal(night.bytes),
        night.device or "",
    )


def all_nights(place: Place) -> list[ListedNight]:
    """Return all nights that are known here, the oldest first."""
    tags = {*place.tags(), *packed_tags(place), *(folder.name for folder in place.shipped.glob("*/"))}
    return sorted((listed(place, tag) for tag in tags if valid_tag(tag)), key=lambda night: (night.started, night.tag))


def listed(place: Place, tag: str) -> ListedNight:
    """Sum up a night; its gain has no interval."""
    is_here, packed, shipped = place.journal(tag).exists(), place.packed(tag), place.shipped / tag
    size = size_of(place.folder(tag) if is_here else packed if packed.exists() else shipped)
    try:
        if packed.exists() and not is_here:
            from agent.archive import read_contents  # rarely needed

            contents = read_contents(packed)
            row = msgspec.convert(contents.summary, ListedNight)
            return replace(row, tag=tag, state=Stage.ARCHIVED, started=contents.started, bytes=size)
        record = read_night(place, tag)
        state = Stage.RUNNING if holder_here(place, tag) else Stage.OPEN if record.is_here else Stage.SHIPPED
        return ListedNight.of(summary_of(replace(record, noise=None)), state, size)
    except (NightError, OSError, *DAMAGED) as error:
        return ListedNight(tag, Stage.DAMAGED, bytes=size, damage=str(error))


def size_of(path: Path) -> int | None:
    """Return the bytes of a file, or of all files below a folder; links are not followed. None where it is not here."""
    files = [path] if path.is_file() else [Path(parent, name) for parent, _, names in os.walk(path) for name in names]
    total = 0
    for file in files:
        with suppress(OSError):  # a running night deletes folders
            status = file.lstat()
            total += min(status.st_size, 512 * status.st_blocks)  # a script may leave a file with a hole of terabytes
    return total if path.exists() else None
