"""Propose without a source: one idea that a person has given, or none."""

from dataclasses import dataclass

from agent.errors import Exhausted
from agent.experiment import Proposal
from agent.proposers.briefing import Briefing


@dataclass(frozen=True, slots=True)
class Given:
    """Propose the edit of `nightshift try`."""

    proposal: Proposal

    def propose(self, briefing: Briefing) -> Proposal:
        return self.proposal


class NoSource:
    """Propose nothing, for `nightshift confirm`."""

    def propose(self, briefing: Briefing) -> Proposal:
        raise Exhausted("no source is asked for ideas")
