"""The commands that show what authors are told now: a language model in a prompt, and one who drives by commands."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agent.cli.reading.which import night_in, place_meant
from agent.cli.words.parser import Subcommand
from agent.errors import NothingYet
from agent.experiment import incumbent
from agent.invocation import typed
from agent.night.briefing import briefing_of
from agent.night.lock import holder
from agent.proposers.author.pages import attempts_page, calls_page, facts_page
from agent.proposers.briefing import Briefing, Left
from agent.proposers.llm.prompt import compose
from agent.text import harmless_lines
from agent.view.answer import Answer, AnswersTo


@dataclass(frozen=True, slots=True)
class TellingOptions:
    tag: str | None
    answer: Answer


def prompt(options: TellingOptions) -> int:
    briefing = _briefing(options.tag)
    # where an attempt has just crashed, its own author is asked for a repair first; this is the question for all others
    asked = compose(briefing)
    system, user = asked.system, asked.messages[0].text
    facts = {"system": system, "user": user, "stable_chars": asked.stable_chars}
    return _tell(options, briefing, facts, f"{system}\n\n{user}")


def facts(options: TellingOptions) -> int:
    briefing = _briefing(options.tag)
    pages = {"facts": facts_page(briefing), "attempts": attempts_page(briefing), "calls": calls_page(briefing)}
    return _tell(options, briefing, pages, "\n".join(pages.values()).rstrip())


def _briefing(tag: str | None) -> Briefing:
    place = place_meant(tag)
    night, history = night_in(place, tag)
    best = incumbent(history)
    if best is None:
        go_on = typed("run", "--tag", night.tag)
        raise NothingYet(
            f"attempt 0 of night {night.tag} is not measured yet; wait for it, or where the night does not run, go on "
            f"with: {go_on}"
        )
    who = holder(place.repo.common_dir)
    tried = sum(one.is_idea for one in history[1:])
    left = who.left(tried) if who is not None and who.tag == night.tag else Left()
    return briefing_of(place, night, history, best, left=left, has_reader=True)


def _tell(options: TellingOptions, briefing: Briefing, answer: Mapping[str, object], text: str) -> int:
    if options.answer.on_stdout:
        options.answer.give({"tag": briefing.night.tag, **answer})
    else:
        print(harmless_lines(text) if sys.stdout.isatty() else text)  # a script may hold codes for a terminal
    return 0


def _words(words: argparse.ArgumentParser) -> None:
    words.add_argument("--tag", help="of this night (default: the latest)")
    words.add_argument("--json", action="store_true", help="print it as JSON, or why that failed")


PROMPT = Subcommand(
    "prompt",
    "what a language model would be told now, for its next idea",
    TellingOptions,
    prompt,
    _words,
    answers=AnswersTo.STDOUT,
)
FACTS = Subcommand(
    "facts",
    "what an agent would be told now: noise, speed, curves, dials, edits, ideas, what a script may call",
    TellingOptions,
    facts,
    _words,
    answers=AnswersTo.STDOUT,
)
