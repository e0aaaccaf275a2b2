"""Turn the words of a command line into a frozen record. A Subcommand describes its words and its record."""

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NoReturn, TypeVar

from agent import __version__
from agent.errors import UsageError
from agent.invocation import typed
from agent.view.answer import Answer, AnswersTo

Options = TypeVar("Options")

LEAST_BESIDE = 24  # columns: a narrower explanation of an example stands below it
RESEARCH = "Research on one training script overnight: propose, commit, train, score, keep what is better."
EXAMPLES = {
    "init night": "a folder with all that a night needs; it is named night",
    "run": "five-minute experiments until you stop it",
    "run --experiments 3 --budget-s 10": "a first look",
    "run --hours 8 --tag wide": "a night; the same command with the tag goes on after a stop",
    "run --llm openai:gpt-5": "ideas from a model, the catalogue, the search and the queue, as each earns them",
    'try -m "warm up longer, to ..."': "one edit of yours: train, score, judge, record",
    "status": "how it goes, and results: the ledger as a table",
    "show 4": "one attempt: what, why, how it ended, and diff 4: its edit",
}


def _no_words(words: argparse.ArgumentParser) -> None:
    """Add nothing, for a command that takes no options."""


def _run(options: object, tag: str | None) -> str:
    return typed("run", "--tag", tag or "TAG")


@dataclass(frozen=True, slots=True)
class Subcommand(Generic[Options]):
    """One command: its words, the record that they become, and the function that takes the record."""

    name: str
    help: str
    options: type[Options]
    act: Callable[[Options], int]  # returns the exit code
    add_words: Callable[[argparse.ArgumentParser], None] = _no_words
    description: str | None = None  # None: as help says
    epilog: str | None = None
    answers: AnswersTo | None = None  # where --json puts its answer; None: it has none
    resume: Callable[[Options, str | None], str] = _run  # the command that goes on with the night of this tag
    verbatim: bool = False  # its words are for another program, which explains them

    def read(self, words: argparse.Namespace, answer: Answer) -> Options:
        """Build the record: each field is the option of its name, and `night` holds the options of a night."""
        names = [field.name for field in fields(self.options)]  # type: ignore[arg-type]
        known = vars(words) | {"answer": answer}
        if "night" in names:
            from agent.cli.words.options import night_options  # the judge and all sources of ideas come with it

            known["night"] = night_options(words)
        return self.options(**{name: known[name] for name in names})


class Parser(argparse.ArgumentParser):
    """Raises UsageError for words that it does not take, where argparse would print and exit."""

    def __init__(self, *parts: Any, **facts: Any) -> None:
        super().__init__(*parts, **{**facts, "exit_on_error": False})

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown words where they stand, so that the usage shown is that of the command.

        Of a value that an option does not take, say which it does: the usage says nothing of that.
        """
        try:
            found, unknown = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            choices = "" if "choose from" in str(error) else f"; see: {self.prog} --help"
            raise UsageError(f"{error}{choices}") from error
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parse(commands: Iterable[Subcommand[Any]], words: Sequence[str], answer: Answer) -> tuple[Subcommand[Any], Any]:
    """Return the named command and its options; raise UsageError for words that it does not take."""
    by_name = {command.name: command for command in commands}
    named = by_name.get(words[0]) if words else None
    if named is not None and named.verbatim:
        return named, named.options(tuple(words[1:]))
    found = _parser(by_name.values()).parse_args(words)
    command = by_name[found.command]
    return command, command.read(found, answer)


def _parser(commands: Iterable[Subcommand[Any]]) -> Parser:
    top = Parser(
        prog=typed(),
        epilog=_examples(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=textwrap.fill(RESEARCH, _columns()),
    )
    top.add_argument("--version", action="version", version=f"nightshift {__version__}")
    named = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for one in commands:
        description = one.description or one.help[0].upper() + one.help[1:] + "."
        one.add_words(named.add_parser(one.name, help=one.help, description=description, epilog=one.epilog))
    return top


def _examples() -> str:
    lines = [f"  {typed()} {words}" for words in EXAMPLES]
    width = max(map(len, lines)) + 2
    explain = _beside if width + LEAST_BESIDE <= _columns() else _below
    return "\n".join(["examples:", *map(explain, (f"{line:<{width}}" for line in lines), EXAMPLES.values())])


def _beside(line: str, what: str) -> str:
    return textwrap.fill(what, _columns(), initial_indent=line, subsequent_indent=" " * len(line))


def _below(line: str, what: str) -> str:
    indent = " " * 6
    return f"{line.rstrip()}\n{textwrap.fill(what, _columns(), initial_indent=indent, subsequent_indent=indent)}"


def _columns() -> int:
    return shutil.get_terminal_size().columns - 2  # as argparse folds all the rest
