"""The next idea is made while a script trains, in another thread."""

import dataclasses
import threading

import pytest
from nights import Quiet, scripted_context, unigram
from sources import LATE_S

from agent.experiment import LOCAL, Attempt, Proposal
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.proposers.source import Briefing, Source


class Costly(Source):
    """Says when it was asked for attempt 2."""

    name, costs = "llm", True

    def __init__(self) -> None:
        self.was_asked_for_2, self.briefings = threading.Event(), list[Briefing]()

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        if briefing.number == 2:
            self.was_asked_for_2.set()
        return [Proposal.of(unigram(SHARPNESS=0.2 * briefing.number), "an idea", "", "llm:x")]


class Patient(Quiet):
    """Lets attempt 1 be scored once attempt 2 was asked for."""

    def __init__(self, source: Costly) -> None:
        super().__init__()
        self.source = source

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            assert self.source.was_asked_for_2.wait(LATE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_next_idea_is_made_while_the_current_one_trains(grounds):
    source = Costly()
    with scripted_context(grounds.root, "t", []) as context:
        own = {"sources": [source], "watcher": Patient(source), "limits": Limits(experiments=2)}
        run_night(dataclasses.replace(context, **own))
    assert [briefing.number for briefing in source.briefings] == [1, 2]
    in_flight = source.briefings[1].history[1]
    assert (in_flight.done_runs, in_flight.decision) == ((), None)
    assert len(grounds.attempts("t")) == 3
