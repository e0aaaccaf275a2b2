"""List all sources of ideas: the command line, the checks and the night read this table.

To add a source, write it in a file of its own as a class, a Source, and name it in SOURCES. An option that it needs is
a field of Terms (agent/experiment.py), and read in agent/cli/options.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import NightError
from agent.experiment import Terms
from agent.invocation import typed
from agent.proposers.catalogue.catalogue import Catalogue
from agent.proposers.command import Command
from agent.proposers.llm import LLM
from agent.proposers.queue import Queue
from agent.proposers.search import Search
from agent.proposers.source import Around, Source
from agent.records.terms import option_of
from agent.script.dials import read_dials, searched
from agent.text import harmless

SOURCES: tuple[type[Source], ...] = (Search, Catalogue, LLM, Command, Queue)
MIX = "mix"  # the value of --proposer that asks all that are set up


def choices() -> tuple[str, ...]:
    """List the values of --proposer."""
    return (*(source.name for source in SOURCES), MIX)


def help_lines() -> str:
    """Explain each choice in a few words."""
    explained = [f"{source.name}: {source.help}" for source in SOURCES]
    return "; ".join([*explained, f"{MIX}: all that is set up, each as it earns"])


def asked(terms: Terms) -> list[type[Source]]:
    """Return the sources that a night with these terms asks by their name, or as part of the mix."""
    return [
        source
        for source in SOURCES
        if terms.proposer in (source.name, MIX) and (source.need is None or _value(source, terms) is not None)
    ]


def _value(source: type[Source], terms: Terms) -> str | None:
    return None if source.need is None else getattr(terms, source.need.term)


def sources_of(around: Around) -> list[Source]:
    """Build the sources of a night from its terms; if one fails, the night goes on with the search."""
    sources = [source.of(around) for source in asked(around.terms)]
    if around.terms.proposer not in (MIX, Search.name):
        search = Search.of(around)
        search.stands_in = True
        sources.append(search)
    return sources


def check_sources(terms: Terms, named: Mapping[str, Any]) -> None:
    """Raise NightError for a source that lacks its option or is never asked, MachineError for a missing SDK.

    named: the terms that this call names; earlier terms of the night may stay unused.
    """
    for source in SOURCES:
        need = source.need
        if need is None or source in asked(terms):
            continue
        usage = typed("run", "--proposer", source.name, option_of(need.term), need.example)
        if terms.proposer == source.name:
            raise NightError(f"--proposer {source.name} needs {option_of(need.term)}, as in: {usage}")
        useless = next((term for term in (need.term, *need.details) if named.get(term) is not None), None)
        if useless is not None:
            raise NightError(f"{option_of(useless)} says nothing where no {source.name} is asked; ask it with: {usage}")
    for source in asked(terms):
        source.check(terms)


def dial_check(terms: Terms) -> Callable[[str, str], object]:
    """Return the check that (script, device kind) has to pass before a night opens with these terms.

    The search needs dials to turn. So does a mix without a model or an agent: known ideas come to an end.
    """
    return searched if terms.proposer in (Search.name, MIX) and not has_reader(terms) else read_dials


def patience_s(terms: Terms) -> float:
    """Return the longest time that one call to a source may take."""
    return 60 * terms.agent_minutes if has_reader(terms) else 0.0


def has_reader(terms: Terms) -> bool:
    """Return whether a source that is asked can read: a language model or a coding agent."""
    return any(source.costs for source in asked(terms))


def ideas_from(terms: Terms) -> str:
    """Name the sources of a night's ideas, as in llm: openai:gpt-5, or mix: search, catalogue, queue."""
    names = [harmless(_value(source, terms) or source.name) for source in asked(terms)]
    return terms.proposer if names == [terms.proposer] else f"{terms.proposer}: {', '.join(names)}"
