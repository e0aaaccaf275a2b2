"""The attempts of nights as tables for other programs: nightshift export."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.scripts import facts_of
from agent.cli.reading.which import none_yet, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NothingYet
from agent.records.place import Place
from agent.text import counted
from agent.view.facts.nouns import NightFacts
from agent.view.facts.read import known_tags
from agent.view.tables import Row, attempts, write_csv, write_jsonl, write_parquet
from agent.view.trackio import write_trackio

TABLES: dict[str, Callable[[Path, Sequence[Row]], tuple[Path, ...]]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "jsonl": write_jsonl,
}
TRACKIO = "trackio"
EXPORT_TEXT = (
    "Write the attempts of nights for other programs, one row an attempt with all its facts. csv: a table of attempts, "
    "one of their runs and one of their decisions; parquet, jsonl: one file with both inside; trackio: a folder "
    " with the curves, dials and scores of each attempt. An earlier export of the same name is replaced."
)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    format: str
    out: Path | None
    tag: list[str]
    all: bool


def export(options: ExportOptions) -> int:
    place = place_meant(options.tag[0] if len(options.tag) == 1 else None)
    nights = _nights(place, options)
    out = _out(options, nights)
    if options.format == TRACKIO:
        show = write_trackio(place, out, nights)
        print(f"wrote {out}: {_written(nights)}; see it with: {show}")
        return 0
    files = TABLES[options.format](out, attempts(nights))
    print(f"wrote {', '.join(map(str, files))}: {_written(nights)}")
    return 0


def _nights(place: Place, options: ExportOptions) -> tuple[NightFacts, ...]:
    """Return the nights that are meant, those with attempts; raise NightError where there are none."""
    tags = known_tags(place) if options.all else tuple(dict.fromkeys(options.tag))
    if not tags and options.all:
        raise none_yet(place)
    read = [facts_of(place, tag) for tag in tags or (None,)]
    nights = tuple(night for night in read if night.attempts)
    if not nights:
        raise NothingYet(f"night {read[0].tag} has no attempt yet; export it once its first attempt has begun")
    return nights


def _out(options: ExportOptions, nights: Sequence[NightFacts]) -> Path:
    """Return the file or folder to write; a folder that is there gets a table inside it."""
    stem = nights[0].tag if len(nights) == 1 else "nights"
    name = f"{stem}-{options.format}" if options.format == TRACKIO else f"{stem}.{options.format}"
    if options.out is None:
        return Path(name)
    return options.out / name if options.format in TABLES and options.out.is_dir() else options.out


def _written(nights: Sequence[NightFacts]) -> str:
    count = sum(len(night.attempts) for night in nights)
    of = f"night {nights[0].tag}" if len(nights) == 1 else f"{len(nights)} nights"
    return f"{counted(count, 'attempt')} of {of}"


def _export_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("format", choices=[*TABLES, TRACKIO], metavar="FORMAT", help="csv, parquet, jsonl or trackio")
    nights = words.add_mutually_exclusive_group()
    nights.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="this night (default: the latest); may be repeated"
    )
    nights.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    to = "the file, or for trackio the folder (default: named after the night, here)"
    words.add_argument("--out", type=Path, metavar="PATH", help=to)


EXPORT = Subcommand("export", "write attempts for other programs", ExportOptions, export, _export_words, EXPORT_TEXT)
