"""The table of all sources of ideas: the command line, the checks, the night and the mix read it.

To add a source, describe it as a Source in a file beside this one, and name it in SOURCES. An option that it needs is a
field of Terms (agent/records/terms.py), and read in agent/cli/words/options.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import NightError
from agent.invocation import typed
from agent.proposers import queue
from agent.proposers.briefing import Proposer
from agent.proposers.checked import Checked
from agent.proposers.entries import AGENT, CATALOGUE, MODEL, SEARCH
from agent.proposers.mix import Mix
from agent.proposers.source import MIX, Source, Surroundings
from agent.records.terms import Terms, option_of
from agent.script.dials import read_dials
from agent.text import harmless

SOURCES: tuple[Source, ...] = (
    SEARCH,
    CATALOGUE,
    MODEL,
    AGENT,
    queue.QUEUE,
)
REPAIRERS = frozenset(name for source in SOURCES if source.repairs for name in source.priors)
FREE = frozenset(source.name for source in SOURCES if source.is_free)
OF_MIX = "all that is set up, each as it earns"


def choices() -> tuple[str, ...]:
    """List the values of --proposer."""
    return (*(source.name for source in SOURCES), MIX)


def help_lines() -> str:
    """Explain each choice in a few words."""
    return "; ".join((*(f"{source.name}: {source.help}" for source in SOURCES), f"{MIX}: {OF_MIX}"))


def check_sources(terms: Terms, asked: Mapping[str, Any]) -> None:
    """Raise NightError for a source that lacks its option or is never asked, MachineError for a missing SDK.

    A source counts as never asked where this call names it; one that the night has from before may rest.
    """
    for source in SOURCES:
        _check_need(source, terms, asked)
    for source in reversed(SOURCES):
        if source.can_be_asked(terms):
            source.check(terms)


def _check_need(source: Source, terms: Terms, asked: Mapping[str, Any]) -> None:
    need = source.need
    if need is None:
        return
    example = typed("run", "--proposer", source.name, need.option, need.example)
    option = f"{need.option} {need.value}, as in: {example}"
    if terms.proposer == source.name and not source.is_set_up(terms):
        raise NightError(f"--proposer {source.name} needs {option}")
    if asked.get(need.term) is not None and not source.may_be_asked(terms):
        others = f"{source.name} or {MIX}" if source.in_mix else source.name
        raise NightError(f"{need.option} is set, but --proposer {terms.proposer} asks it nothing; use {others}")
    named = next((term for term in need.details if asked.get(term)), None)
    if not source.is_set_up(terms) and named is not None:
        raise NightError(f"{option_of(named)} is about {need.means}; name it with {option}")


def dial_check(terms: Terms) -> Callable[[str, str], object]:
    """Return the check that (script, device kind) has to pass before a night opens with these terms.

    A mix without a model or an agent needs dials: known ideas come to an end, and the queue may stay empty.
    """
    if terms.proposer == MIX and not any(one.need is not None and one.can_be_asked(terms) for one in SOURCES):
        return next((source.check_script for source in SOURCES if source.last), read_dials)
    return next((source.check_script for source in SOURCES if source.name == terms.proposer), read_dials)


def patience_s(terms: Terms) -> float:
    """Return the longest time that one call to a source may take, over those that may be asked."""
    asked = (source for source in SOURCES if source.can_be_asked(terms))
    return max((source.patience_s(terms) for source in asked), default=0.0)


def has_reader(terms: Terms) -> bool:
    """Return whether a source that may be asked can read: a language model or a coding agent."""
    return any(source.repairs and source.can_be_asked(terms) for source in SOURCES)


def ideas_from(terms: Terms) -> str:
    """Say where a night's ideas come from, as in llm: openai:gpt-5, or mix: search, catalogue, queue."""
    asked = [source for source in SOURCES if source.can_be_asked(terms)]
    named = [one.need.of(terms) or "" for one in asked if one.need]
    cap = [f"at most ${terms.max_cost:g} for language models"] if terms.llm in named and terms.max_cost else []
    others = [one.name for one in asked if one.need is None and terms.proposer == MIX]
    words = [harmless(word) for word in (*named, *cap, *others)]
    return f"{terms.proposer}{': ' if words else ''}{', '.join(words)}"


def proposer_of(around: Surroundings) -> Proposer:
    """Build the proposer of a night by its terms."""
    terms, night = around.terms, around.night
    asked = [source for source in SOURCES if source.may_be_asked(terms) or (source.last and terms.proposer != MIX)]
    asked.sort(key=lambda source: (source.last, not source.first))
    proposers = {name: one for source in asked for name, one in source.proposers(around).items()}
    return Mix(
        {name: Checked(one, around.place.script, around.outbox.claims) for name, one in proposers.items()},
        f"{night.tag} {night.seed}",
        first=[source.name for source in asked if source.first],
        # whatever fails, the night goes on with these
        last=[source.name for source in asked if source.last and terms.proposer not in (MIX, source.name)],
        repairers=REPAIRERS,
        alike={name: tuple(source.priors) for source in asked for name in source.priors},
        priors={name: prior for source in asked for name, prior in source.priors.items()},
        at_once={name: source.at_once for source in asked for name in source.priors if source.at_once is not None},
        claims=around.outbox.claims,
        say=around.outbox.said,
    )
