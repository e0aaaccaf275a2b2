"""The next idea is made while a script trains, in another thread."""

import dataclasses
import threading

import pytest
from nights import Quiet, scripted_context, unigram
from proposing import LATE_S

from agent.experiment import Attempt, Proposal
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.proposers.proposer import Briefing, Proposer
from agent.work import LOCAL


class Costly(Proposer):
    """Says when it was asked for attempt 2."""

    name, costs = "llm", True

    def __init__(self) -> None:
        self.was_asked_for_2, self.briefings = threading.Event(), list[Briefing]()

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        self.briefings.append(briefing)
        if briefing.number == 2:
            self.was_asked_for_2.set()
        return [Proposal.of(unigram(SHARPNESS=0.2 * briefing.number), "an idea", "", "llm:x")]


class Patient(Quiet):
    """Lets attempt 1 be scored once attempt 2 was asked for."""

    def __init__(self, proposer: Costly) -> None:
        super().__init__()
        self.proposer = proposer

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            assert self.proposer.was_asked_for_2.wait(LATE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_next_idea_is_made_while_the_current_one_trains(grounds):
    proposer = Costly()
    with scripted_context(grounds.root, "t", []) as context:
        own = {"proposers": [proposer], "watcher": Patient(proposer), "limits": Limits(experiments=2)}
        run_night(dataclasses.replace(context, **own))
    assert [briefing.number for briefing in proposer.briefings] == [1, 2]
    in_flight = proposer.briefings[1].history[1]
    assert (in_flight.done_runs, in_flight.decision) == ((), None)
    assert len(grounds.attempts("t")) == 3
