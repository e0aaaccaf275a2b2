"""The table of sources: whatever stands in it can be chosen, is explained, and takes part in nights."""

import pytest
from nights import Grounds, unigram

from agent.errors import NoIdea
from agent.experiment import Proposal
from agent.proposers import registry
from agent.proposers.registry import SOURCES, choices, help_lines
from agent.proposers.source import Around, Briefing, Source

QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off", "--tag", "t")

pytestmark = pytest.mark.usefixtures("own_cache")


class Toy(Source):
    """Proposes one script, once."""

    name, help = "toy", "one idea of a toy"

    @classmethod
    def of(cls, around: Around) -> "Toy":
        toy = cls()
        toy.say = around.messages.say
        return toy

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        if len(briefing.history) > 1:
            raise NoIdea("the toy had one idea")
        self.say("the toy plays")
        return [Proposal(unigram(SHARPNESS=0.9), "sharper", "It is nearer to one.", "toy")]


def test_a_source_of_the_table_is_a_choice_is_explained_and_the_search_steps_in_for_it(grounds: Grounds, monkeypatch):
    monkeypatch.setattr(registry, "SOURCES", (*SOURCES, Toy))
    assert choices() == ("search", "catalogue", "llm", "command", "queue", "toy", "mix")
    assert "toy: one idea of a toy; mix: all that is set up" in help_lines()
    done = grounds.nightshift("run", "--proposer", "toy", "--experiments", "2", *QUICK)
    assert done.returncode == 0, done.stderr
    assert [attempt.proposal.source for attempt in grounds.attempts("t")] == ["you", "toy", "search"]
    assert "  ideas    toy\n" in done.stdout
    assert "the toy plays\n" in done.stdout
    assert "toy has no idea: the toy had one idea\n" in done.stdout
