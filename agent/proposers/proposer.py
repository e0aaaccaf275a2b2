"""Define a proposer: the parts that it is built from, its briefing before it proposes, and its answers.

A proposer is a class in a file or folder of its own, named in PROPOSERS in registry.py. The night asks it in a thread
(agent/night/proposals.py), and which proposer is asked next is chosen in mix.py.
"""

import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Self

from agent.errors import NightError, ScriptError
from agent.experiment import Ask, Attempt, History, Night, Noise, Options, Proposal
from agent.records.place import Place
from agent.records.record import Record
from agent.script.contract import check_script, imports_of_edits
from agent.script.dials import fingerprint, first_with

# ---- what a proposer is told -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """Describe the text that all attempts train on, and how it is cut into tokens."""

    name: str
    bytes_per_token: float  # a mean over the validation text
    vocab_size: int
    seq_len: int  # tokens in a row of a batch


@dataclass(frozen=True, slots=True)
class Setting:
    """The surroundings of a night that are in neither its journal nor its script."""

    corpus: Corpus | None = None  # None: the prepared data do not say
    # title of each known idea, the most promising first → kept #4, tried #7, yes (untried), unlikely, or no (it does
    # not apply)
    ideas: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A proposal that was turned down before it cost a run."""

    proposal: Proposal
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """The rest of a night; None: no limit."""

    experiments: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Briefing:
    """Everything that a proposer is told before it proposes."""

    night: Night
    history: History
    parent: Attempt  # the best script: its script is to be edited
    noise: Noise | None = None  # None until two runs of one attempt were scored
    program: str = ""  # program.md, as it stands now
    notes: tuple[str, ...] = ()  # people's notes to the night, in their order
    asks: Sequence[Ask] = ()  # every call of the night
    refused: tuple[Refusal, ...] = ()  # the last tries for this proposal, and what was wrong with them
    broken: Attempt | None = None  # an attempt that has just crashed: its proposer may repair it, once
    left: Left = Left()
    setting: Setting | None = None  # None: no proposer of the night can read
    asked_for: int | None = None  # see `number`
    past: Sequence[Record] = ()  # earlier nights

    @property
    def number(self) -> int:
        """Return the number that the idea would get as an attempt; of questions asked at once, each has another."""
        return len(self.history) if self.asked_for is None else self.asked_for

    @property
    def sigma_bpb(self) -> float | None:
        """Return the standard deviation of one run's score; None until two runs of one attempt were scored."""
        return None if self.noise is None else self.noise.sigma_bpb

    @property
    def edited(self) -> str:
        """Return the script to edit: the best one, or the broken one that is to be repaired."""
        return (self.broken or self.parent).proposal.script

    def is_new(self, script: str) -> bool:
        """Return whether a script is new: neither an attempt of this night nor refused just now."""
        refused = (fingerprint(refusal.proposal.script) for refusal in self.refused)
        digest = fingerprint(script)
        return digest not in refused and first_with(digest, self.history) is None


def check_proposal(proposal: Proposal, history: History, script: str) -> None:
    """Raise NightError for a proposal that cannot be a new attempt; `script` is the script's name for the message."""
    try:
        check_script(proposal.script, script, imports_of_edits(history[0].proposal.script))
    except ScriptError as error:
        raise NightError(f"{proposal.proposer} proposed a script that cannot be run: {error}") from error
    earlier = first_with(fingerprint(proposal.script), history)
    if earlier is not None:
        raise NightError(f"{proposal.proposer} proposed the script of attempt {earlier} again; it has to be a new one")


# ---- what a proposer is built from -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Messages:
    """Take what proposers have to tell, in any thread."""

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
        """Return whether a proposer should give up, since its answer would not be used."""
        return self.closed.is_set() or self.is_ending()


@dataclass(frozen=True, slots=True)
class Around:
    """The parts of a night that a proposer is built from."""

    place: Place
    night: Night
    options: Options
    messages: Messages


@dataclass(frozen=True, slots=True)
class Need:
    """Name the option without which a proposer cannot be asked, and how it is written."""

    option: str  # a field of Options
    example: str
    details: tuple[str, ...] = ()  # options that say nothing without it


# ---- a proposer ------------------------------------------------------------------------------------------------------


class Proposer:
    """Propose edits. The defaults suit a proposer that costs nothing and answers at once."""

    name: str = ""  # a value of --proposer; the proposer of each of its proposals begins with it
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
    def check(cls, options: Options) -> None:
        """Raise NightshiftError for options that it cannot work with, before the night begins."""

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        """Return edits of the parent's script, at least one, the one to try first at the beginning.

        Raise NoIdea if there is none this time, and Exhausted if there will be none for this script. Any thread may
        call it.
        """
        raise NotImplementedError
