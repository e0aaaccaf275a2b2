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

pytestmark = pytest.mark.usefixtures("own_cache")


class Slow(Source):
    """Answers when the run beside which it is asked has begun; says when it was asked, and when it had its idea."""

    name, costs = "llm", True

    def __init__(self, events: list[str]) -> None:
        self.events, self.run_began, self.answered = events, threading.Event(), threading.Event()
        self.briefings: list[Briefing] = []

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        number = len(briefing.history)
        self.briefings.append(briefing)
        self.events.append(f"asked for {number}")
        if number == 2:
            assert self.run_began.wait(LATE_S)
        self.events.append(f"idea {number}")
        if number == 2:
            self.answered.set()
        return [Proposal(unigram(SHARPNESS=0.2 * number), f"idea {number}", "", "llm:x")]


class Listener(Quiet):
    """Writes down what the driver does; attempt 1 is not scored before the next idea is there."""

    def __init__(self, source: Slow) -> None:
        super().__init__()
        self.source = source
        self.threads = {threading.get_ident()}

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.threads.add(threading.get_ident())
        self.source.events.append(f"run of {attempt.number}")
        if attempt.number == 1:
            self.source.run_began.set()

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            self.source.answered.wait(LATE_S)

    def attempt_settled(self, attempt: Attempt) -> None:
        self.source.events.append(f"verdict on {attempt.number}")


def test_the_next_idea_is_made_while_the_current_one_trains(grounds):
    events: list[str] = []
    slow = Slow(events)
    listener = Listener(slow)
    with scripted_context(grounds.root, "t", []) as context:
        limits = Limits(experiments=2)
        run_night(dataclasses.replace(context, sources=[slow], watcher=listener, limits=limits))
    assert events == [
        *("run of 0", "verdict on 0", "asked for 1", "idea 1"),
        *("run of 1", "asked for 2", "idea 2", "verdict on 1", "run of 2", "verdict on 2"),
    ]
    in_flight = slow.briefings[1].history[1]
    assert (in_flight.done_runs, in_flight.decision) == ((), None)
    assert len(listener.threads) == 1
