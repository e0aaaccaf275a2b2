"""Subcommand lines that resume a night or repeat a try. They are whole, so that no option is lost."""

from agent.cli.words.options import SCRIPT, NightOptions, RunOptions, TryOptions
from agent.experiment import History, runs_at_dawns
from agent.invocation import typed
from agent.records.terms import as_words


def run_on(options: RunOptions, tag: str, history: History) -> str:
    """Return the command that goes on with a night for as long again; its journal knows all other options."""
    words = ["run", "--tag", tag, *script_words(options.night)]
    ideas = sum(attempt.is_idea for attempt in history[1:])
    words += ["--experiments", _as_many_more(options.experiments, ideas)] if options.experiments is not None else []
    words += ["--hours", f"{options.hours:g}"] if options.hours is not None else []
    words += ["--dawn", _as_many_more(options.dawn, runs_at_dawns(history))] if options.dawn is not None else []
    return typed(*words)


def _as_many_more(most: int, done: int) -> str:
    """Keep a limit that counts over the whole night while it is not used up; else raise it by as many again."""
    return str(done + most if 0 < most <= done else most)


def try_again(options: TryOptions) -> str:
    """Return the whole command: without its other options it would begin another kind of night."""
    night = options.night
    for word, number in (("--wait", options.wait), ("--cancel", options.cancel)):
        if number is not None:
            return typed("try", word, number, *(["--json"] if options.answer.on_stdout else []), *script_words(night))
    message = options.message if options.message.strip() else "what is changed, and why it should help"
    words = ["-m", message, *(["--json"] if options.answer.on_stdout else [])]
    words += ["--edit", str(options.edit)] if options.edit else []
    words += ["--budget-s", f"{night.budget_s:g}"] if night.budget_s is not None else []
    words += ["--seed", str(night.seed)] if night.seed is not None else []
    words += ["--tag", night.tag] if night.tag is not None else []
    words += ["--anyway"] if options.anyway else []
    words += ["--start"] if options.start else []
    return typed("try", *words, *script_words(night), *as_words(night.terms))


def script_words(night: NightOptions) -> list[str]:
    return ["--script", str(night.script)] if night.script != SCRIPT else []
