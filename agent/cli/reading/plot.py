"""A picture of the progress: nightshift plot."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.scripts import latest_tag
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError, NothingYet
from agent.invocation import typed
from agent.records.place import Place
from agent.view.facts.read import known_tags, night_facts

WIDTH_PX = 720
BESIDE_PX = 460  # of each night, where several lie side by side
DRAWN = (".svg", ".png")


@dataclass(frozen=True, slots=True)
class PlotOptions:
    tag: list[str]
    all: bool
    out: Path


def plot(options: PlotOptions) -> int:
    from agent.view.charts.parts.palette import Theme
    from agent.view.charts.progress import progress_chart
    from agent.view.charts.render import png, svg

    if options.out.suffix.lower() not in DRAWN:
        raise NightError(f"--out must end in .png or .svg, and {options.out} does not")
    place = place_meant()
    nights = [night_facts(place, tag) for tag in _chosen(place, options)]
    scored = [night for night in nights if any(one.val_bpb is not None for one in night.attempts)]
    if not scored:
        raise NothingYet(f"there is no scored attempt to plot; run: {typed('run')}")
    spec = progress_chart(scored, width_px(len(scored)))
    drawn = png(spec) if options.out.suffix.lower() == ".png" else svg(spec, Theme.LIGHT).encode()
    try:
        options.out.write_bytes(drawn)
    except OSError as error:
        raise NightError(f"{options.out} cannot be written ({error}); name a file in an existing folder") from error
    print(f"wrote {options.out}: {', '.join(night.tag for night in scored)}")
    return 0


def width_px(nights: int) -> int:
    """Return the width of the picture: many nights lie in two or three columns, or it would be too long to look at."""
    columns = 1 if nights < 4 else 2 if nights < 9 else 3
    return max(WIDTH_PX, columns * BESIDE_PX)


def _chosen(place: Place, options: PlotOptions) -> Sequence[str]:
    """Return the tags of all nights, the named ones, or that of the latest."""
    if options.tag:
        return tuple(dict.fromkeys(options.tag))
    return known_tags(place) if options.all else (latest_tag(place),)


def _plot_words(words: argparse.ArgumentParser) -> None:
    nights = words.add_mutually_exclusive_group()
    nights.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="this night (default: the latest); may be repeated"
    )
    nights.add_argument("--all", action="store_true", help="every night, also those that came with the repository")
    words.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")


PLOT = Subcommand(
    "plot", "draw the progress: every attempt, the best so far, the honest gain", PlotOptions, plot, _plot_words
)
