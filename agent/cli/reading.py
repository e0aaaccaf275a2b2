"""The commands that only read: the ledger, where a night stands, one attempt, a picture, what dawn has found."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.errors import NightError, NoRepository, ScriptError
from agent.experiment import Attempt, Night
from agent.git.repo import Repo
from agent.invocation import SCRIPT, typed
from agent.judging.confirmation import Findings
from agent.night.lock import holder, is_held
from agent.night.record import write_ledger
from agent.night.stop import Stop
from agent.proposers.mix import shares
from agent.records.journal import Journal
from agent.records.ledger import Row, read_rows
from agent.records.place import Place
from agent.text import harmless_lines
from agent.view import terminal as report
from agent.view.screen import print_lines, terminal_width


def results(options: argparse.Namespace) -> int:
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
    if place.tags() and not is_held(place.repo.common_dir()):
        write_ledger(place)  # a running night does it by itself, and must not be overtaken by an older rendering
    return read_rows(place.ledger)


def status(options: argparse.Namespace) -> int:
    place = place_meant()
    who = holder(place.repo.common_dir())
    tag = who.tag if who and place.journal(who.tag).exists() else None
    night, history = night_in(place, tag)
    running = who is not None and who.tag == night.tag
    stopping = Stop(place.folder(night.tag)).after_run
    with Journal.read(place.journal(night.tag)) as journal:
        brought, dawn = shares(history, journal.asks()), next(reversed(journal.dawns()), None)
    pid = who.pid if who and running else None
    for line in report.status_lines(night, history, pid=pid, stopping=stopping, dawn=dawn):
        print(line)
    for line in report.shares_lines(brought) if brought else ():
        print(line)
    return 0


def show(options: argparse.Namespace) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = _pick(history, options.number, night)
    folder = place.folder(night.tag) / "runs" / f"{attempt.number:04d}"
    who = holder(place.repo.common_dir())
    with Journal.read(place.journal(night.tag)) as journal:
        running = who is not None and who.tag == night.tag and journal.at_work() == attempt.number
    print_lines(report.attempt_lines(night, attempt, folder, terminal_width(), running=running))
    return 0


def diff(options: argparse.Namespace) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = _pick(history, options.number, night)
    parent = night.base if attempt.parent is None else history[attempt.parent].commit
    if attempt.commit is None or parent is None:
        raise NightError(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    text = place.repo.diff(parent, attempt.commit)
    print(harmless_lines(text) if text else f"attempt {attempt.number} is the script as it stands in {parent[:7]}")
    return 0


def plot(options: argparse.Namespace) -> int:
    from agent.view.plot import chosen
    from agent.view.plot import plot as draw

    place = place_meant()
    tags = place.tags()
    rows = chosen(_rows(place), options.tag, tags[-1] if tags else None, everything=options.all)
    draw(rows, options.out)
    nights = dict.fromkeys(row.get("tag", "") for row in rows)
    print(f"wrote {options.out}: {', '.join(filter(None, nights)) or 'rows without a night'}")
    return 0


def show_findings(options: argparse.Namespace) -> int:
    from agent.night.dawn import in_words

    place, answer = place_meant(options.tag), options.answer
    night, history = night_in(place, options.tag)
    with Journal.read(place.journal(night.tag)) as journal:
        dawn = next((one for one in reversed(journal.dawns()) if one.findings), None)
    if dawn is None or dawn.findings is None:
        begin = typed("confirm", "--tag", night.tag)
        raise NightError(f"night {night.tag} has no findings yet; begin with: {begin}")
    ended = f"ended {dawn.ended}" if dawn.ended else "not at its end yet"
    lines = in_words(place, night, history, Findings.of(dawn.findings))
    stream = sys.stderr if answer.on_stdout else sys.stdout
    print("\n".join([f"dawn {dawn.number} of night {night.tag}, {ended}", *lines]), file=stream)
    answer.give(dawn.findings)
    return 0


# ---- what they read --------------------------------------------------------------------------------------------------


def _begin_with() -> str:
    return f"begin with: {typed('run')}"


def _here() -> Place:
    """Where the command was given; raises NightError where no night can have run."""
    try:
        return Place.of(Path(SCRIPT))
    except (NoRepository, ScriptError):
        raise NightError(
            f"no night has run in {Path.cwd()}; go to the folder of your script, or begin with: {typed('run')}"
        ) from None


def place_meant(tag: str | None = None) -> Place:
    """Here; but where a night runs in another working tree of the repository and may be meant, that one."""
    here = _here()
    who = holder(here.repo.common_dir())
    if who is None or tag not in (None, who.tag) or not Path(who.folder, "journal.sqlite").is_file():
        return here
    return Place(Repo(Path(who.folder).parents[2]), here.script)


def night_in(place: Place, tag: str | None) -> tuple[Night, tuple[Attempt, ...]]:
    """The night of this tag, or the latest, and its attempts; raises NightError where it has no journal here."""
    tags = place.tags()
    if tag is None and not tags:
        raise NightError(f"no night has run here yet; {_begin_with()}")
    if tag is not None and tag not in tags:
        raise NightError(f"night {tag} has no journal here; there are: {', '.join(tags) or 'none'}")
    with Journal.read(place.journal(tag or tags[-1])) as journal:
        return journal.night(), journal.attempts()


def _pick(history: Sequence[Attempt], number: int, night: Night) -> Attempt:
    if not 0 <= number < len(history):
        last = f"0 to {len(history) - 1}" if history else "none yet"
        raise NightError(f"night {night.tag} has no attempt {number}; there are: {last}")
    return history[number]
