"""Keep the ideas of one answer that are not tried yet; they are paid for, so they come before the next question.

An idea stays in the night's file until an attempt has its words, so a killed night finds it when it is resumed, the one
that was taken for an attempt which never began among them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NightError, NoIdea
from agent.experiment import Briefing, History, Proposal
from agent.proposers.ahead import IdeaAhead, load, save, words_of

FILE = "pending.json"


class Pending:
    """Hold the pending ideas of a night, first in, first tried. say: told of an idea that is dropped."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say

    def next(self, briefing: Briefing) -> Proposal | None:
        """Return the first idea that can be tried, as an edit of the parent; drop those that cannot, with a reason."""
        night, history = briefing.night, briefing.history
        ideas = load(self._folder, FILE, history)
        for at, idea in enumerate(ideas):
            try:
                proposal = idea.carried_to(briefing.parent, history, night.script, night.device_kind)
            except NightError as error:
                self._say(f"an idea of {idea.proposal.source} is dropped, {idea.proposal.title!r}: {error}")
                continue
            if at:
                save(self._folder, FILE, ideas[at:])
            return proposal
        save(self._folder, FILE, ())
        return None

    def keep(self, proposals: Sequence[Proposal], briefing: Briefing) -> None:
        """Put ideas that edit the parent's script at the end."""
        number = len(briefing.history)
        new = [IdeaAhead(proposal, briefing.parent.number, is_free=False, number=number) for proposal in proposals]
        save(self._folder, FILE, [*load(self._folder, FILE, briefing.history), *new])
        self._say(f"{proposals[0].source} had {len(new)} ideas; they are tried one after the other")


def is_pending(proposal: Proposal, folder: Path, history: History) -> bool:
    """Return whether an idea that was made ahead is pending, too, so that it is not lost if another comes first."""
    return any(words_of(idea.proposal) == words_of(proposal) for idea in load(folder, FILE, history))


@dataclass(frozen=True, slots=True)
class PendingFirst:
    """Propose what is pending before anything is asked; keep what an answer has beside the idea to try next.

    ask: returns the ideas of one answer, the one to try first at the beginning.
    """

    ask: Callable[[Briefing], Sequence[Proposal]]
    source: str
    pending: Pending

    def propose(self, briefing: Briefing) -> Proposal:
        if briefing.broken is not None and briefing.broken.proposal.source == self.source:
            return self.ask(briefing)[0]
        known = self.pending.next(briefing)
        if known is not None:
            return known
        ideas = self.ask(briefing)
        if len(ideas) == 1:
            return ideas[0]
        self.pending.keep(ideas, briefing)  # the first as well, in case the night is killed before it is an attempt
        first = self.pending.next(briefing)
        if first is None:
            raise NoIdea("no idea of the answer can be tried")
        return first
