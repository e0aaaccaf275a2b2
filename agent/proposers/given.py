"""Where no source is asked: one idea that a person has had already, or none at all."""

from dataclasses import dataclass

from agent.errors import Exhausted
from agent.experiment import Briefing, Proposal


@dataclass(frozen=True, slots=True)
class Given:
    """Proposes what `nightshift try` tries."""

    proposal: Proposal

    def propose(self, briefing: Briefing) -> Proposal:
        return self.proposal


class NoSource:
    """Proposes nothing, as `nightshift confirm` needs it."""

    def propose(self, briefing: Briefing) -> Proposal:
        raise Exhausted("no source is asked for ideas")
