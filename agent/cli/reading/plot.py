"""A picture of the progress: nightshift plot."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.results import current_rows
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand


@dataclass(frozen=True, slots=True)
class PlotOptions:
    tag: list[str]
    all: bool
    out: Path


def plot(options: PlotOptions) -> int:
    from agent.view.plot import chosen
    from agent.view.plot import plot as draw

    place = place_meant()
    tags = place.tags()
    rows = chosen(current_rows(place), options.tag, tags[-1] if tags else None, everything=options.all)
    draw(rows, options.out)
    nights = dict.fromkeys(row.get("tag", "") for row in rows)
    print(f"wrote {options.out}: {', '.join(filter(None, nights)) or 'rows without a night'}")
    return 0


def _plot_words(words: argparse.ArgumentParser) -> None:
    nights = words.add_mutually_exclusive_group()
    nights.add_argument(
        "--tag", action="append", default=[], metavar="T", help="this night (default: the latest); may be repeated"
    )
    nights.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    words.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")


PLOT = Subcommand(
    "plot", "draw the progress: kept, discarded, crashed, running minimum", PlotOptions, plot, _plot_words
)
