"""Say what a source of ideas is, what it is built from, and how it speaks to the night in its own threads.

A source is a class in a file of its own, named in SOURCES in registry.py. The night asks it in a thread
(agent/night/ideas.py), and which source is asked next is chosen in mix.py.
"""

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import Self

from agent.experiment import Ask, Night, Proposal, Terms
from agent.proposers.briefing import Briefing
from agent.records.place import Place, past_nights
from agent.records.record import Record
from agent.records.terms import option_of


@dataclass(frozen=True, slots=True)
class Messages:
    """Take what sources have to tell, in any thread."""

    record: Callable[[Ask], None] = lambda ask: None  # a call, as soon as it is over
    is_ending: Callable[[], bool] = lambda: False  # the night was asked to end
    closed: Event = field(default_factory=Event)
    sentences: "queue.SimpleQueue[str]" = field(default_factory=queue.SimpleQueue)

    def say(self, sentence: str) -> None:
        """Have the night say a sentence."""
        self.sentences.put(sentence)

    def taken(self) -> list[str]:
        """Return the sentences that were not said yet."""
        return [self.sentences.get_nowait() for _ in range(self.sentences.qsize())]

    def stopped(self) -> bool:
        """Return whether a source should give up, since its answer would not be used."""
        return self.closed.is_set() or self.is_ending()


@dataclass(frozen=True)
class Around:
    """Hold the parts of a night that a source is built from."""

    place: Place
    night: Night
    terms: Terms
    messages: Messages

    @cached_property
    def past(self) -> tuple[Record, ...]:
        """Return the earlier nights, read once for all sources."""
        return past_nights(self.place, self.night.tag)


@dataclass(frozen=True, slots=True)
class Need:
    """Name the term without which a source cannot be asked, and how its option is written."""

    term: str  # a field of Terms
    value: str  # as the help calls it: SPEC
    example: str
    details: tuple[str, ...] = ()  # terms that say nothing without it

    @property
    def option(self) -> str:
        return option_of(self.term)


class Source:
    """Have ideas. Each attribute has a value that fits a source which only computes."""

    name: str = ""  # as --proposer takes it; the source of its proposals begins with it
    help: str = ""
    need: Need | None = None  # None: it can always be asked
    # Its ideas take minutes or money. So it is asked while scripts train, and may repair what crashed.
    costs: bool = False
    at_once: int | None = 1  # how many questions it is asked at the same time; None: one for each worker
    is_person: bool = False  # somebody waits: it is asked before all others, and answers at once
    attempts_a_keep: float = 2.0  # expected before it has proposed anything: in how many it brings a keep
    stands_in: bool = False  # asked where the others have no idea

    @classmethod
    def of(cls, around: Around) -> Self:
        """Build it for a night."""
        raise NotImplementedError

    @classmethod
    def check(cls, terms: Terms) -> None:
        """Raise NightshiftError for terms that it cannot work with, before the night begins."""

    @classmethod
    def patience_s(cls, terms: Terms) -> float:
        """Return how long one call to it may take."""
        return 0.0

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        """Return edits of the parent's script, at least one, the one to try first at the beginning.

        Raise NoIdea if there is none this time, and Exhausted if there will be none for this script. Any thread may
        call it.
        """
        raise NotImplementedError
