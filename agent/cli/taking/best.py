"""The best script of a night, and its model as a folder: nightshift best."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from agent.cli.reading.scripts import facts_of, script_of
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.files import write_plain
from agent.model.best_script import BestScript
from agent.model.lines import best_lines
from agent.model.weights import find_weights, weights_of
from agent.records.place import Place
from agent.view.answer import Answer, AnswersTo
from agent.view.facts.json import plain
from agent.view.scoring_words import without_scoring_words
from agent.view.screen import print_lines, terminal_width

BEST_TEXT = (
    "Print a night's best script, its gain and how to take it; or write it to a file, or its model to a folder: "
    "script, weights, tokenizer and a card. mlx-lm loads the folder (docs/taking.md)."
)


@dataclass(frozen=True, slots=True)
class BestOptions:
    tag: str | None
    to_script: Path | None
    weights: Path | None
    answer: Answer


def best(options: BestOptions) -> int:
    place = place_meant(options.tag)
    found = BestScript.of(facts_of(place, options.tag))
    people = options.answer.for_people
    if options.to_script is not None:
        _write_script(script_of(place, found.facts, found.attempt), found, options.to_script, people)
    if options.weights is not None:
        _write_folder(place, found, options.weights, people)
    if options.answer.on_stdout:
        options.answer.give(_told(place, found))
        return 0
    if options.to_script is options.weights is None:
        weights = find_weights(place, found.facts.tag, found.attempt.number)
        is_ref_here = place.repo.find(found.ref) is not None
        can_go_on = place.journal(found.facts.tag).exists()
        print_lines(best_lines(found, weights, terminal_width(), is_ref_here=is_ref_here, can_go_on=can_go_on))
    return 0


def _told(place: Place, found: BestScript) -> dict[str, object]:
    """Return the facts about the best script for programs."""
    weights = find_weights(place, found.facts.tag, found.attempt.number)
    return {
        "tag": found.facts.tag,
        **without_scoring_words(plain(found.attempt)),
        "ref": found.ref,
        "branch": found.branch,
        "gain": found.gain,
        "dawn": found.dawn,
        "weights": None if weights is None else str(weights.path),
    }


def _write_script(script: str, found: BestScript, path: Path, people: TextIO) -> None:
    if path.exists():
        raise NightError(f"{path} exists; name another file")
    if not path.absolute().parent.is_dir():
        raise NightError(f"{path.absolute().parent} is no folder; make it, or name another place")
    write_plain(path, script)
    print(f"wrote {path}: attempt {found.attempt.number} of night {found.facts.tag}", file=people)


def _write_folder(place: Place, found: BestScript, folder: Path, people: TextIO) -> None:
    from agent.model.folder import check_folder, write_folder

    check_folder(folder)
    weights = weights_of(place, found.facts.tag, found.attempt.number)
    write_folder(place, found, weights, folder)
    print(
        f"wrote {folder}: attempt {found.attempt.number} of night {found.facts.tag}, seed {weights.seed}", file=people
    )
    print(f"{folder / 'README.md'} says what it is, and how mlx-lm loads it", file=people)


def _best_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", metavar="TAG", help="of this night (default: the latest)")
    words.add_argument("--script", dest="to_script", type=Path, metavar="FILE", help="write the script there")
    words.add_argument("--weights", type=Path, metavar="DIR", help="write script, weights, tokenizer and card there")
    words.add_argument("--json", action="store_true", help="print all facts as JSON: nothing else on stdout")


BEST = Subcommand(
    "best",
    "the best script of a night, and its model for mlx-lm",
    BestOptions,
    best,
    _best_words,
    BEST_TEXT,
    answers=AnswersTo.STDOUT,
)
