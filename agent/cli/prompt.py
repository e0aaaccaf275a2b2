"""The command that shows what a language model would be told now."""

import argparse
import sys
from dataclasses import dataclass

from agent.cli.reading.which import night_in, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NightError
from agent.experiment import Left, incumbent
from agent.judging.noise import noise
from agent.night.briefing.brief import briefing_of
from agent.proposers.llm.prompt import compose
from agent.text import harmless_lines
from agent.view.answer import Answer, AnswersTo


@dataclass(frozen=True, slots=True)
class PromptOptions:
    tag: str | None
    answer: Answer


def prompt(options: PromptOptions) -> int:
    place = place_meant(options.tag)
    night, history = night_in(place, options.tag)
    best = incumbent(history)
    if best is None:
        raise NightError(f"attempt 0 of night {night.tag} is not measured yet; a model is asked once it is")
    found = noise(history)
    # where an attempt has just crashed, its own author is asked for a repair first; this is the question for all others
    asked = compose(briefing_of(place, night, history, best, found, left=Left(), has_reader=True))
    if options.answer.on_stdout:
        turn = asked.turns[0].text
        options.answer.give(
            {"tag": night.tag, "system": asked.system, "user": turn, "stable_chars": asked.stable_chars}
        )
    else:
        text = f"{asked.system}\n\n{asked.turns[0].text}"
        print(harmless_lines(text) if sys.stdout.isatty() else text)  # a script may hold codes for a terminal
    return 0


def _prompt_words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", help="of this night (default: the latest)")
    words.add_argument("--json", action="store_true", help="print system prompt and message as JSON")


PROMPT = Subcommand(
    "prompt",
    "what a language model would be told now, for its next idea",
    PromptOptions,
    prompt,
    _prompt_words,
    answers=AnswersTo.STDOUT,
)
