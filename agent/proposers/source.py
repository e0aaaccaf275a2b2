"""Describe a source of ideas: its name and help line, what it needs, how long it may take, and how it is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agent.experiment import Night, Terms
from agent.proposers.briefing import Proposer
from agent.proposers.mix import USUAL, Prior
from agent.proposers.outbox import Outbox
from agent.records.place import Place
from agent.records.shipped import PastNight, past_nights
from agent.records.terms import option_of
from agent.script.dials import read_dials


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
    """Hold an entry of the table in agent/proposers/registry.py."""

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
