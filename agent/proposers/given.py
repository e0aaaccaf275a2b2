"""One idea that somebody has already had: what `nightshift try` tries."""

from dataclasses import dataclass

from agent.errors import Exhausted
from agent.experiment import Briefing, Proposal


@dataclass(frozen=True, slots=True)
class Given:
    proposal: Proposal

    def propose(self, briefing: Briefing) -> Proposal:
        return self.proposal


class Nobody:
    """Where nothing is to be proposed."""

    def propose(self, briefing: Briefing) -> Proposal:
        raise Exhausted("nobody is asked for ideas")
