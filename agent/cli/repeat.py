"""The command lines that go on with what was begun, or begin it once more: whole, so that nothing given is lost."""

import argparse

from agent.cli.options import SCRIPT
from agent.experiment import History, runs_at_dawns
from agent.invocation import typed
from agent.records.terms import as_words, given


def run_on(options: argparse.Namespace, tag: str, history: History) -> str:
    """The command line that goes on with a night for as long again; all else its journal knows."""
    words = ["run", "--tag", tag, *script_words(options)]
    ideas = sum(attempt.is_idea for attempt in history[1:])
    words += ["--experiments", _as_many_more(options.experiments, ideas)] if options.experiments is not None else []
    words += ["--hours", f"{options.hours:g}"] if options.hours is not None else []
    words += ["--dawn", _as_many_more(options.dawn, runs_at_dawns(history))] if options.dawn is not None else []
    return typed(*words)


def _as_many_more(most: int, done: int) -> str:
    """Of what is counted over the whole night: as it was while that is not used up, else as many again."""
    return str(done + most if 0 < most <= done else most)


def try_again(options: argparse.Namespace) -> str:
    """The whole command: what was given beside the edit would be missed, and a night begun with other options."""
    message = options.message if options.message.strip() else "what is changed, and why it should help"
    words = ["-m", message, *(["--json"] if options.json else [])]
    words += ["--edit", str(options.edit)] if options.edit else []
    words += ["--budget-s", f"{options.budget_s:g}"] if options.budget_s is not None else []
    words += ["--seed", str(options.seed)] if options.seed is not None else []
    words += ["--tag", options.tag] if options.tag is not None else []
    return typed("try", *words, *script_words(options), *as_words(given(options)))


def script_words(options: argparse.Namespace) -> list[str]:
    return ["--script", str(options.script)] if options.script != SCRIPT else []
