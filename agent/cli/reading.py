"""The commands that only read nights: ledger, standing, one attempt, a picture, a record that can be committed."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.cli.parser import Subcommand
from agent.errors import NightError, NoRepository, ScriptError
from agent.experiment import Attempt, Night
from agent.files import read_plain
from agent.git.repo import Repo
from agent.invocation import SCRIPT, typed
from agent.night.lock import holder, is_held
from agent.night.record import write_ledger
from agent.night.stop import Stop
from agent.proposers.mix import shares_of
from agent.records.journal import Journal
from agent.records.ledger import Row, read_rows
from agent.records.place import Place
from agent.records.shipped import ship as write_record
from agent.records.standing import Standing, is_up_to_date
from agent.text import harmless_lines
from agent.view import terminal as report
from agent.view.screen import print_folded, print_lines, terminal_width

# ---- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultsOptions:
    tag: str | None
    all: bool


def results(options: ResultsOptions) -> int:
    place = place_meant(options.tag)
    rows = _rows(place)
    if not options.all:
        tag = options.tag or (place.tags()[-1] if place.tags() else None)
        rows = [row for row in rows if tag is None or row.get("tag") == tag]
        if options.tag and not rows:
            raise NightError(f"results.tsv has no night {options.tag}; see them all with: {typed('results', '--all')}")
    if not rows:
        see = f"see: {typed('status')}, {typed('results', '--all')}"
        raise NightError(f"no results yet; {see if place.tags() else _begin_with()}")
    print_lines(report.results_lines(rows, terminal_width()))
    return 0


def _rows(place: Place) -> list[Row]:
    if not is_held(place.repo.common_dir()) and not all(map(partial(_is_up_to_date, place), place.tags())):
        write_ledger(place)  # a running night does so itself: an older rendering must not overwrite the newer
    return read_rows(place.ledger)


def _is_up_to_date(place: Place, tag: str) -> bool:
    """Return whether the ledger has all that this night's journal knows; a journal that cannot be read has no rows."""
    with suppress(NightError), Journal.read(place.journal(tag)) as journal:
        return is_up_to_date(read_plain(place.ledger), journal.night(), journal)
    return True


def _results_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", help="this night only (default: the latest)")
    words.add_argument("--all", action="store_true", help="every night, also those that came with the repository")


RESULTS = Subcommand("results", "the ledger as a table", ResultsOptions, results, _results_words)

# ---- status ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """No options."""


def status(options: StatusOptions) -> int:
    place = place_meant()
    who = holder(place.repo.common_dir())
    tag = who.tag if who and place.journal(who.tag).exists() else None
    tag = tag or known_tag(place, None)
    running = who is not None and who.tag == tag
    with Journal.read(place.journal(tag)) as journal:
        night, now = journal.night(), Standing.read(journal)
        brought, dawn = shares_of(now.brought, journal.asks()), next(reversed(journal.dawns()), None)
        history = journal.attempts() if dawn is not None else ()
    pid, stopping = who.pid if who and running else None, Stop(place.folder(tag)).after_run
    print_folded(report.standing_lines(night, now, history, pid=pid, stopping=stopping, dawn=dawn))
    for line in report.shares_lines(brought, terminal_width()) if brought else ():
        print(line)
    return 0


STATUS = Subcommand("status", "what runs now, and how the latest night stands", StatusOptions, status)

# ---- show and diff ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    number: int
    tag: str | None


def show(options: AttemptOptions) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = _pick(history, options.number, night)
    folder = place.folder(night.tag) / "runs" / f"{attempt.number:04d}"
    who = holder(place.repo.common_dir())
    with Journal.read(place.journal(night.tag)) as journal:
        running = who is not None and who.tag == night.tag and journal.at_work() == attempt.number
    print_lines(report.attempt_lines(night, attempt, folder, terminal_width(), running=running))
    return 0


def diff(options: AttemptOptions) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = _pick(history, options.number, night)
    parent = night.base if attempt.parent is None else history[attempt.parent].commit
    if attempt.commit is None or parent is None:
        raise NightError(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    text = place.repo.diff(parent, attempt.commit)
    print(harmless_lines(text) if text else f"attempt {attempt.number} is the script as it stands in {parent[:7]}")
    return 0


def _attempt_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("number", type=int, metavar="N", help="the attempt's number")
    words.add_argument("--tag", help="of this night (default: the latest)")


SHOW = Subcommand("show", "everything about one attempt", AttemptOptions, show, _attempt_words)
DIFF = Subcommand("diff", "an attempt's edit", AttemptOptions, diff, _attempt_words)

# ---- plot ------------------------------------------------------------------------------------------------------------


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
    rows = chosen(_rows(place), options.tag, tags[-1] if tags else None, everything=options.all)
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

# ---- ship ------------------------------------------------------------------------------------------------------------

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
    words.add_argument("tag", nargs="?", metavar="TAG", help="of this night (default: the latest)")
    to = "the record's folder, which may hold an earlier record of this night (default: experiments/shipped/TAG)"
    words.add_argument("--to", type=Path, metavar="DIR", help=to)


SHIP = Subcommand("ship", "write a night's record, to be committed", ShipOptions, ship, _ship_words, SHIP_TEXT)

# ---- which night -----------------------------------------------------------------------------------------------------


def _begin_with() -> str:
    return f"begin with: {typed('run')}"


def _here() -> Place:
    """Return the place where the command was given; raise NightError where no night can have run."""
    try:
        return Place.of(Path(SCRIPT))
    except (NoRepository, ScriptError):
        raise NightError(
            f"no night has run in {Path.cwd()}; go to the folder of your script, or begin with: {typed('run')}"
        ) from None


def place_meant(tag: str | None = None) -> Place:
    """Return this place, or the other working tree of the repository whose running night may be meant."""
    here = _here()
    who = holder(here.repo.common_dir())
    if who is None or tag not in (None, who.tag) or not Path(who.folder, "journal.sqlite").is_file():
        return here
    return Place(Repo(Path(who.folder).parents[2]), here.script)


def night_in(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """Return the night of this tag, or the latest, and its attempts; raise NightError where it has no journal here."""
    with Journal.read(place.journal(known_tag(place, tag))) as journal:
        return journal.night(), journal.attempts()


def known_tag(place: Place, tag: str | None) -> str:
    """Return this tag, or that of the latest night; raise NightError where it has no journal here."""
    tags = place.tags()
    if tag is None and not tags:
        raise NightError(f"no night has run here yet; {_begin_with()}")
    if tag is not None and tag not in tags:
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    return tag or tags[-1]


def _pick(history: Sequence[Attempt], number: int, night: Night) -> Attempt:
    if not 0 <= number < len(history):
        last = f"0 to {len(history) - 1}" if history else "none yet"
        raise NightError(f"night {night.tag} has no attempt {number}; there are: {last}")
    return history[number]
