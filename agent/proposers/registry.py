"""The table of all sources of ideas: the command line, the checks, the night and the mix read it.

To add a source, write it in a file of its own, describe it here as a Source, and name it in SOURCES. An option that it
needs is a field of Terms (agent/experiment.py), and read in agent/cli/options.py.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from threading import BoundedSemaphore
from typing import Any

from agent.errors import NightError
from agent.experiment import Ask, Night, Proposal, Terms
from agent.invocation import typed
from agent.proposers.author.pages import AskMode
from agent.proposers.briefing import Briefing, Proposer
from agent.proposers.catalogue.catalogue import Catalogue
from agent.proposers.command import Command, split
from agent.proposers.llm.chat import MAX_TOKENS, Patience
from agent.proposers.llm.llm import LLM, Price
from agent.proposers.mix import USUAL, Asked, Mix, Prior
from agent.proposers.outbox import Outbox
from agent.proposers.queue import Queue
from agent.proposers.search.search import Search
from agent.records.place import Place
from agent.records.shipped import PastNight, past_nights
from agent.records.terms import OF_THE_MODEL, option_of
from agent.sandbox.environment import SECRET_WORDS
from agent.script.dials import read_dials, searched
from agent.text import harmless

ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(?=[^\s=]*[^\d\s=])(?=[^\s=]{8})")  # NAME=value, as after env
KEY = re.compile(r"\bsk-[\w-]{16,}")  # as providers write theirs
CALLS_AT_ONCE = 4  # to a language model: providers limit the rate, and a server at home is slower with more


@dataclass(frozen=True)
class Surroundings:
    """Hold the parts of a night that a source is built from."""

    place: Place
    night: Night
    terms: Terms
    outbox: Outbox  # takes calls and sentences of the source; tells when the night was asked to end

    @cached_property
    def past(self) -> tuple[PastNight, ...]:
        """Return the earlier nights, read once for all sources."""
        return past_nights(self.place, self.night.tag)


@dataclass(frozen=True, slots=True)
class Need:
    """Name the term without which a source cannot be asked, and how its option is written."""

    term: str  # a field of Terms
    value: str  # as the help calls it: SPEC
    example: str
    means: str  # the source, for a sentence: a language model
    details: tuple[str, ...] = ()  # terms that say nothing without it

    @property
    def option(self) -> str:
        return option_of(self.term)

    def of(self, terms: Terms) -> str | None:
        value: str | None = getattr(terms, self.term)
        return value


def _nothing_to_check(terms: Terms) -> None:
    """Accept any terms."""


@dataclass(frozen=True, slots=True)
class Source:
    """Hold an entry of the table."""

    name: str  # as --proposer takes it; a proposal's source begins with it
    help: str
    build: Callable[[Surroundings], Proposer | Mapping[str, Proposer]]  # a mapping: one for each of its modes
    need: Need | None = None  # None: it can always be asked
    check: Callable[[Terms], None] = _nothing_to_check  # raises NightshiftError for terms that it cannot work with
    # (script, device kind): raises ScriptError for a script that this source could not work on alone
    check_script: Callable[[str, str], object] = read_dials
    patience_s: Callable[[Terms], float] = lambda terms: 0.0  # how long one call to it may take
    at_once: int | None = 1  # how many questions it is asked at the same time; None: one for each worker
    first: bool = False  # asked before all others: a person waits for it
    last: bool = False  # asked where every other fails, so that the night goes on
    prior: Prior = USUAL
    modes: Mapping[str, Prior] = field(default_factory=dict)  # ways of asking it that earn a share each, by their names

    @property
    def priors(self) -> Mapping[str, Prior]:
        """Return the names under which it earns shares, and what is expected of each."""
        return self.modes or {self.name: self.prior}

    @property
    def costs(self) -> bool:
        """Return whether its ideas cost time or money, and are kept therefore; such a source can read why one broke."""
        return self.need is not None

    def proposers(self, around: Surroundings) -> Mapping[str, Proposer]:
        """Build it, with a proposer for each of these names."""
        built = self.build(around)
        return built if isinstance(built, Mapping) else {self.name: built}

    def is_set_up(self, terms: Terms) -> bool:
        return self.need is None or self.need.of(terms) is not None

    def may_be_asked(self, terms: Terms) -> bool:
        """Return whether a night with these terms asks it, by its name or as part of the mix."""
        return terms.proposer == self.name or (terms.proposer == MIX and self.is_set_up(terms))

    def can_be_asked(self, terms: Terms) -> bool:
        return self.may_be_asked(terms) and self.is_set_up(terms)


MIX = "mix"  # the value of --proposer that asks several

# ---- search ----------------------------------------------------------------------------------------------------------


def _search_of(around: Surroundings) -> Proposer:
    """Build a search that has learnt from earlier nights, and so tries other things first than they did."""
    night = around.night
    return Search(night.device_kind, f"{night.tag} {night.seed}", earlier=around.past)


# The judge takes one edit in four for a gain before it has seen any (belief.PRIOR), and a turn of dials is no better
# than others: near a tuned start, nine in a row on an H200 were losses. An idea of the catalogue was a gain elsewhere.
SEARCH = Source(
    "search",
    "turns dials, needs no key",
    _search_of,
    check_script=searched,
    last=True,
    prior=Prior(4.0),
)

# ---- the catalogue ---------------------------------------------------------------------------------------------------

CATALOGUE = Source(
    "catalogue",
    "known ideas, one patch each in ideas/, needs no key",
    lambda around: Catalogue(around.place.script_path, around.past, around.outbox.said),
)

# ---- a language model ------------------------------------------------------------------------------------------------


def model_of(
    terms: Terms,
    record: Callable[[Ask], None],
    stopped: Callable[[], bool],
    say: Callable[[str], None] = lambda sentence: None,
) -> LLM:
    llm = LLM(
        terms.llm or "",
        record,
        url=terms.llm_url,
        stopped=stopped,
        price=Price(*terms.price) if terms.price else None,
        max_usd=terms.max_cost,
        patience=Patience(max_tokens=terms.llm_max_tokens or MAX_TOKENS),
        stream=terms.llm_stream,
    )
    if llm.warning is not None:
        say(llm.warning)
    return llm


def _modes_of(around: Surroundings) -> dict[str, Proposer]:
    """Build one model with a proposer for each mode of asking."""
    outbox = around.outbox
    llm = model_of(around.terms, outbox.record_ask, outbox.stopped, outbox.said)
    return {mode.value: InMode(llm, mode) for mode in AskMode}


@dataclass(frozen=True, slots=True)
class InMode:
    """Ask a model in one mode."""

    llm: LLM
    mode: AskMode

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        return self.llm.ideas(briefing, self.mode)


def _check_model(terms: Terms) -> None:
    model_of(terms, lambda ask: None, lambda: False)


MODEL = Source(
    "llm",
    "a language model",
    _modes_of,
    Need("llm", "SPEC", "openai:gpt-5", "a language model", details=(*OF_THE_MODEL, "max_cost")),
    check=_check_model,
    patience_s=lambda terms: Patience().ask_s,
    at_once=CALLS_AT_ONCE,
    # Ideas unlike all others fail more often than the next step. But agents do not explore unless they are told to, and
    # early in a night an idea that works has the most time to be built on.
    modes={AskMode.EDIT.value: USUAL, AskMode.EXPLORE.value: Prior(3.0, 2), AskMode.COMBINE.value: Prior(3.0)},
)

# ---- a coding agent --------------------------------------------------------------------------------------------------


def _agent_of(around: Surroundings) -> Command:
    terms, outbox, folder = around.terms, around.outbox, around.place.folder(around.night.tag)
    return Command(terms.agent or "", folder, outbox.record_ask, outbox.stopped, limit_s=60 * terms.agent_minutes)


def _check_keyless(terms: Terms) -> None:
    """Refuse a key: the journal keeps the command line, and every process of the machine may read it."""
    for word in split(terms.agent or ""):
        for found in (*ASSIGNMENT.finditer(word), *KEY.finditer(word)):
            name = found[1] if found.re is ASSIGNMENT else "sk-"
            if name == "sk-" or any(secret in name.upper() for secret in SECRET_WORDS):
                raise NightError(
                    f"--command holds what looks like a key ({name}…), which the journal would keep; export it "
                    f"instead: the agent has your environment"
                )


AGENT = Source(
    "command",
    "any coding agent",
    _agent_of,
    Need("agent", "CMD", "claude -p", "a coding agent"),
    check=_check_keyless,
    patience_s=lambda terms: 60 * terms.agent_minutes,
    at_once=None,
)

QUEUE = Source(
    "queue",
    "what `nightshift submit` was given",
    lambda around: Queue(around.place.queue, around.place.nights, around.outbox.said),
    first=True,
)

# ---- the table -------------------------------------------------------------------------------------------------------

SOURCES: tuple[Source, ...] = (SEARCH, CATALOGUE, MODEL, AGENT, QUEUE)
COSTLY = frozenset(name for source in SOURCES if source.costs for name in source.priors)
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
        raise NightError(
            f"{need.option} is set, but --proposer {terms.proposer} asks it nothing; use {source.name} or {MIX}"
        )
    named = next((term for term in need.details if asked.get(term)), None)
    if not source.is_set_up(terms) and named is not None:
        raise NightError(f"{option_of(named)} is about {need.means}; name it with {option}")


def dial_check(terms: Terms) -> Callable[[str, str], object]:
    """Return the check that (script, device kind) has to pass before a night opens with these terms.

    A mix without a model or an agent needs dials: known ideas come to an end, and the queue may stay empty.
    """
    if terms.proposer == MIX and not any(one.costs and one.can_be_asked(terms) for one in SOURCES):
        return next((source.check_script for source in SOURCES if source.last), read_dials)
    return next((source.check_script for source in SOURCES if source.name == terms.proposer), read_dials)


def patience_s(terms: Terms) -> float:
    """Return the longest time that one call to a source may take, over those that may be asked."""
    asked = (source for source in SOURCES if source.can_be_asked(terms))
    return max((source.patience_s(terms) for source in asked), default=0.0)


def has_reader(terms: Terms) -> bool:
    """Return whether a source that may be asked can read: a language model or a coding agent."""
    return any(source.costs and source.can_be_asked(terms) for source in SOURCES)


def ideas_from(terms: Terms) -> str:
    """Say where a night's ideas come from, as in llm: openai:gpt-5, or mix: search, catalogue, queue."""
    asked = [source for source in SOURCES if source.can_be_asked(terms)]
    named = [one.need.of(terms) or "" for one in asked if one.need]
    cap = [f"at most ${terms.max_cost:g} for language models"] if terms.llm in named and terms.max_cost else []
    others = [one.name for one in asked if one.need is None and terms.proposer == MIX]
    words = [harmless(word) for word in (*named, *cap, *others)]
    return f"{terms.proposer}{': ' if words else ''}{', '.join(words)}"


def proposer_of(around: Surroundings) -> Proposer:
    """Build the proposer of a night by its terms; whatever fails, the night goes on with the last sources."""
    terms, sources = around.terms, dict[str, Asked]()
    for source in sorted(SOURCES, key=lambda source: (source.last, not source.first)):
        if source.may_be_asked(terms) or (source.last and terms.proposer != MIX):
            stands_in = source.last and terms.proposer not in (MIX, source.name)
            slots = nullcontext() if source.at_once is None else BoundedSemaphore(source.at_once)
            for name, proposer in source.proposers(around).items():
                alike, prior = frozenset(source.priors), source.priors[name]
                sources[name] = Asked(proposer, source.costs, source.first, stands_in, alike, prior, slots)
    return Mix(sources, f"{around.night.tag} {around.night.seed}", around.outbox)
