"""One attempt in full, and its edit: nightshift show, nightshift diff."""

import argparse
from dataclasses import dataclass

from agent.cli.reading.scripts import not_here
from agent.cli.reading.which import night_in, picked, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.night.lock import holder
from agent.records.journal import Journal
from agent.records.place import run_folder
from agent.text import harmless_lines
from agent.view import terminal
from agent.view.screen import print_lines, terminal_width


@dataclass(frozen=True, slots=True)
class AttemptOptions:
    number: int
    tag: str | None


def show(options: AttemptOptions) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = picked(history, options.number, night)
    folder = run_folder(place.folder(night.tag), attempt.number, night.seed).parent
    who = holder(place.repo.common_dir())
    with Journal.read(place.journal(night.tag)) as journal:
        running = who is not None and who.tag == night.tag and journal.at_work() == attempt.number
    print_lines(terminal.attempt_lines(night, attempt, folder, terminal_width(), running=running))
    return 0


def diff(options: AttemptOptions) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    attempt = picked(history, options.number, night)
    parent = night.base if attempt.parent is None else history[attempt.parent].commit
    if attempt.commit is None or parent is None:
        raise NightError(f"attempt {attempt.number} of night {night.tag} is not committed yet; try again in a moment")
    for commit in (parent, attempt.commit):
        if place.repo.find(commit) is None:
            raise NightError(f"the edit of attempt {attempt.number} cannot be shown: {not_here(night.tag, commit)}")
    text = place.repo.diff(parent, attempt.commit)
    print(harmless_lines(text) if text else f"attempt {attempt.number} is the script as it stands in {parent[:7]}")
    return 0


def _attempt_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("number", type=int, metavar="N", help="the attempt's number")
    words.add_argument("--tag", help="of this night (default: the latest)")


SHOW = Subcommand("show", "everything about one attempt", AttemptOptions, show, _attempt_words)
DIFF = Subcommand("diff", "an attempt's edit", AttemptOptions, diff, _attempt_words)
