"""Text that a kept model writes: nightshift sample."""

import argparse
import math
import secrets
from dataclasses import dataclass

from rich.console import Console

from agent.cli.reading.scripts import attempt_in, facts_of
from agent.cli.reading.which import place_meant
from agent.cli.words.parser import Subcommand
from agent.cli.words.values import positive_int, seed, whole
from agent.model.best_script import BestScript
from agent.model.weights import weights_of
from agent.night.lock import like_ctrl_c
from agent.records.journal import Journal
from agent.text import harmless_lines

SAMPLE_TEXT = (
    "Continue a text with the weights that a night kept, in the night's sandbox. The model has read little and knows "
    "nothing: look at its text to see what it has learnt. Ctrl-C ends it."
)
TOKENS, TEMPERATURE = 200, 0.8
WIDEST = 10.0  # temperature


@dataclass(frozen=True, slots=True)
class SampleOptions:
    text: str
    attempt: int | None
    tokens: int
    temperature: float
    seed: int | None
    tag: str | None


def sample(options: SampleOptions) -> int:
    from agent.model.sampling import SampleRequest
    from agent.model.sampling import sample as continue_text

    place = place_meant(options.tag)
    facts = facts_of(place, options.tag)
    tag, chosen = facts.tag, options.attempt
    attempt = attempt_in(facts, chosen) if chosen is not None else BestScript.of(facts).attempt
    place.check_own(tag)
    weights = weights_of(place, tag, attempt.number)
    with Journal.read(place.journal(tag)) as journal:
        night, script = journal.night(), journal.attempt(attempt.number).proposal.script
    drawn = secrets.randbits(32) if options.seed is None else options.seed
    asked = SampleRequest(options.text, options.tokens, options.temperature, drawn)
    console = Console(stderr=True)
    waiting = console.status(f"loading attempt {attempt.number} of night {night.tag}")
    begun = False

    def write(text: str) -> None:
        nonlocal begun
        if not begun:
            waiting.stop()
            print(harmless_lines(options.text), end="")
        begun = True
        print(text, end="", flush=True)

    try:
        with like_ctrl_c(), waiting:
            continue_text(night, place.folder(tag), script, weights.path, asked, write)
    except KeyboardInterrupt:
        return 130
    finally:
        if begun:
            print(flush=True)
    return 0


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= WIDEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {WIDEST:g}")
    return value


def _sample_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("text", help="the beginning, which the model continues")
    words.add_argument("--attempt", type=whole, metavar="N", help="default: the night's best")
    words.add_argument(
        "--tokens", type=positive_int, default=TOKENS, metavar="N", help="to add, at most (default: %(default)s)"
    )
    words.add_argument(
        "--temperature",
        type=_temperature,
        default=TEMPERATURE,
        metavar="X",
        help="how freely it draws; 0 takes the likeliest token each time (default: %(default)s)",
    )
    words.add_argument("--seed", type=seed, metavar="K", help="gives the same text again (default: another each time)")
    words.add_argument("--tag", metavar="TAG", help="of this night (default: the latest)")


SAMPLE = Subcommand("sample", "continue a text with a kept model", SampleOptions, sample, _sample_words, SAMPLE_TEXT)
