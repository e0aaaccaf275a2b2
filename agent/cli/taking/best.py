"""The best script of a night, and its model as a folder: nightshift best."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from agent.cli.reading.which import known_tag, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.files import write_plain
from agent.invocation import typed
from agent.model.best_script import BestScript
from agent.model.lines import best_lines
from agent.model.weights import find_weights, weights_of
from agent.view.screen import print_lines, terminal_width

BEST_TEXT = (
    "Print a night's best script, its gain and how to check it out; or write it to a file, or its model to a folder: "
    "script, weights, tokenizer and a card. mlx-lm loads the folder (docs/results.md)."
)


@dataclass(frozen=True, slots=True)
class BestOptions:
    tag: str | None
    to_script: Path | None
    weights: Path | None


def best(options: BestOptions) -> int:
    place = place_meant(options.tag)
    champion = BestScript.of(place, known_tag(place, options.tag))
    if options.to_script is not None:
        _write_script(champion, options.to_script)
    if options.weights is not None:
        _write_folder(champion, options.weights)
    if options.to_script is options.weights is None:
        weights = find_weights(champion.folder, champion.night, champion.attempt)
        print_lines(best_lines(champion, weights, terminal_width()))
    return 0


def _write_script(champion: BestScript, path: Path) -> None:
    script = champion.attempt.proposal.script
    if path.exists():
        raise NightError(f"{path} exists; name another file, or compare with: {_shown(champion)}")
    if not path.absolute().parent.is_dir():
        raise NightError(f"{path.absolute().parent} is no folder; make it, or name another place")
    write_plain(path, script)
    print(f"wrote {path}: attempt {champion.attempt.number} of night {champion.night.tag}")


def _write_folder(champion: BestScript, folder: Path) -> None:
    from agent.model.folder import check_folder, write_folder

    check_folder(folder)
    weights = weights_of(champion.folder, champion.night, champion.attempt)
    write_folder(champion, weights, folder)
    print(f"wrote {folder}: attempt {champion.attempt.number} of night {champion.night.tag}, seed {weights.seed}")
    print(f"{folder / 'README.md'} says what it is, and how mlx-lm loads it")


def _shown(champion: BestScript) -> str:
    return typed("diff", str(champion.attempt.number), "--tag", champion.night.tag)


def _best_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", metavar="T", help="of this night (default: the latest)")
    words.add_argument("--script", dest="to_script", type=Path, metavar="FILE", help="write the script there")
    words.add_argument("--weights", type=Path, metavar="DIR", help="write script, weights, tokenizer and card there")


BEST = Subcommand(
    "best", "the best script of a night, and its model for mlx-lm", BestOptions, best, _best_words, BEST_TEXT
)
