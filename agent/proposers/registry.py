"""List all proposers: the command line, the checks and the night read this table.

To add a proposer, write it in a file of its own as a class, a Proposer, and name it in PROPOSERS. An option that it
needs is a field of Options (agent/experiment.py), and read in agent/cli/options.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import NightError
from agent.experiment import Options
from agent.invocation import typed
from agent.proposers.catalogue.catalogue import Catalogue
from agent.proposers.command import Command
from agent.proposers.llm import LLM
from agent.proposers.proposer import Around, Proposer
from agent.proposers.queue import Queue
from agent.proposers.search import Search
from agent.records.options import option_of
from agent.script.dials import read_dials, searched
from agent.text import harmless

PROPOSERS: tuple[type[Proposer], ...] = (Search, Catalogue, LLM, Command, Queue)
MIX = "mix"  # the value of --proposer that asks all that are set up


def choices() -> tuple[str, ...]:
    """List the values of --proposer."""
    return (*(proposer.name for proposer in PROPOSERS), MIX)


def help_lines() -> str:
    """Explain each choice in a few words."""
    explained = [f"{proposer.name}: {proposer.help}" for proposer in PROPOSERS]
    return "; ".join([*explained, f"{MIX}: all that is set up, each as it earns"])


def asked(options: Options) -> list[type[Proposer]]:
    """Return the proposers that a night with these options asks by their name, or as part of the mix; a study: none."""
    if options.study is not None:
        return []
    return [
        proposer
        for proposer in PROPOSERS
        if options.proposer in (proposer.name, MIX) and (proposer.need is None or _value(proposer, options) is not None)
    ]


def _value(proposer: type[Proposer], options: Options) -> str | None:
    return None if proposer.need is None else getattr(options, proposer.need.option)


def proposers_of(around: Around) -> list[Proposer]:
    """Build the proposers of a night from its options; if one fails, the night goes on with the search."""
    proposers = [proposer.of(around) for proposer in asked(around.options)]
    if proposers and around.options.proposer not in (MIX, Search.name):
        search = Search.of(around)
        search.stands_in = True
        proposers.append(search)
    return proposers


def check_proposers(options: Options, named: Mapping[str, Any]) -> None:
    """Raise NightError for a proposer that lacks its option or is never asked, MachineError for a missing SDK.

    named: the options that this call names; earlier options of the night may stay unused.
    """
    for proposer in PROPOSERS:
        need = proposer.need
        if need is None or proposer in asked(options):
            continue
        usage = typed("run", "--proposer", proposer.name, option_of(need.option), need.example)
        if options.proposer == proposer.name:
            raise NightError(f"--proposer {proposer.name} needs {option_of(need.option)}, as in: {usage}")
        useless = next((option for option in (need.option, *need.details) if named.get(option) is not None), None)
        if useless is not None:
            raise NightError(
                f"{option_of(useless)} says nothing where no {proposer.name} is asked; ask it with: {usage}"
            )
    for proposer in asked(options):
        proposer.check(options)


def dial_check(options: Options) -> Callable[..., object]:
    """Return the check that (script, device kind) has to pass before a night opens with these options.

    The search needs dials to turn. So does a mix without a model or an agent: known ideas come to an end.
    """
    return searched if Search in asked(options) and not has_reader(options) else read_dials


def patience_s(options: Options) -> float:
    """Return the longest time that one call to a proposer may take."""
    return 60 * options.agent_minutes if has_reader(options) else 0.0


def has_reader(options: Options) -> bool:
    """Return whether a proposer that is asked can read: a language model or a coding agent."""
    return any(proposer.costs for proposer in asked(options))


def ideas_from(options: Options) -> str:
    """Name the proposers of a night's ideas, as in llm: openai:gpt-5, or mix: search, catalogue, queue."""
    names = [harmless(_value(proposer, options) or proposer.name) for proposer in asked(options)]
    if options.study is not None:
        return "the arms of the study"
    return options.proposer if names == [options.proposer] else f"{options.proposer}: {', '.join(names)}"
