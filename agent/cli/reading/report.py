"""Nights as one page for a browser: nightshift report."""

import argparse
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.scripts import latest_tag
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.files import write_plain
from agent.invocation import typed
from agent.records.place import Place
from agent.text import counted
from agent.view.page.writer import PAGE


@dataclass(frozen=True, slots=True)
class ReportOptions:
    tag: list[str]
    out: Path | None
    png: Path | None
    open: bool


def report(options: ReportOptions) -> int:
    from agent.view.facts.read import night_facts
    from agent.view.page.extras import gather
    from agent.view.page.page import page

    if options.png is not None and options.png.suffix.lower() != ".png":
        raise NightError(f"--png must end in .png, and {options.png} does not")
    place = place_meant(options.tag[0] if options.tag else None)
    tags = list(dict.fromkeys(options.tag)) or [latest_tag(place)]
    nights = [night_facts(place, tag) for tag in tags]
    out = options.out or default_path(place, tags)
    _write(out, page(nights, gather(place, nights)), is_own=options.out is None)
    attempts = sum(len(night.attempts) for night in nights)
    print(f"wrote {out}: {', '.join(tags)}, {counted(attempts, 'attempt')}")
    if options.png is not None:
        from agent.view.page.drawings import picture

        _write(options.png, picture(nights))
        print(f"wrote {options.png}")
    if options.open and not webbrowser.open(out.resolve().as_uri()):
        print(f"no browser can be opened here; open {out.resolve()} in one")
    return 0


def default_path(place: Place, tags: Sequence[str]) -> Path:
    """Return where the report of a night is kept, or that of several."""
    return place.folder(tags[0]) / PAGE if len(tags) == 1 else place.nights / PAGE


def _write(path: Path, content: str | bytes, *, is_own: bool = False) -> None:
    if path.is_dir():
        raise NightError(f"{path} is a folder; name a file, as in {typed('report', '--out', str(path / PAGE))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        if is_own and path.is_symlink():  # in a night's folder: a clone may bring one
            path.unlink(missing_ok=True)
        write_plain(path, content)
    else:
        path.write_bytes(content)


def _report_words(words: argparse.ArgumentParser) -> None:
    told = "this night (default: the latest); may be repeated, to compare several"
    words.add_argument("--tag", action="append", default=[], metavar="TAG", help=told)
    words.add_argument("--open", action="store_true", help="show it in a browser")
    words.add_argument("--out", type=Path, metavar="FILE", help=f"default: {PAGE} in the night's folder")
    words.add_argument("--png", type=Path, metavar="FILE", help="draw a picture to share there, too: a .png file")


WHAT = "a page for a browser: what was tried, what helped, and how sure that is"
REPORT = Subcommand("report", WHAT, ReportOptions, report, _report_words)
