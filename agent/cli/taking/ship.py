"""The record of a night that can be committed: nightshift ship."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.which import known_tag, place_meant
from agent.cli.words.parser import Subcommand
from agent.records.shipped import ship as write_record

SHIP_TEXT = (
    "Write the record of a night as small text files that can be committed: its facts, its attempts without their "
    "scripts, its best script's diff, dawn's findings. Later nights learn from the records in experiments/shipped/."
)


@dataclass(frozen=True, slots=True)
class ShipOptions:
    tag: str | None
    to: Path | None


def ship(options: ShipOptions) -> int:
    place = place_meant(options.tag)
    tag = known_tag(place, options.tag)
    folder = options.to if options.to is not None else place.shipped / tag
    for path in write_record(place, tag, folder):
        print(f"wrote {path}: {path.stat().st_size:,} bytes")
    return 0


def _ship_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", metavar="TAG", help="of this night (default: the latest)")
    to = "the record's folder, which may hold an earlier record of this night (default: experiments/shipped/TAG)"
    words.add_argument("--to", type=Path, metavar="DIR", help=to)


SHIP = Subcommand("ship", "write a night's record, to be committed", ShipOptions, ship, _ship_words, SHIP_TEXT)
