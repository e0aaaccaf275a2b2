"""The next idea is made while a run trains; by when it is due, its parent may have fallen or the night have ended."""

import dataclasses
import threading
import time
from collections.abc import Callable

import pytest
from asked_ahead import LATE_S, Source, dials, lab_with, night, turned, whole
from nights import SCRIPTS, Quiet, unigram
from sources import mixed

from agent.experiment import LOCAL, Ask, Attempt, Proposal, Status
from agent.night.loop import run_night
from agent.proposers.briefing import Briefing
from agent.proposers.queue import Queue, submit

pytestmark = pytest.mark.usefixtures("own_cache")

BETTER, WORSE = unigram(SHARPNESS=0.8), unigram(SHARPNESS=0.2)
SHARPER, SMOOTHER = turned(SHARPNESS=0.8), turned(SMOOTHING=2.0)


# ---- beside a run ----------------------------------------------------------------------------------------------------


class Slow(Source):
    """Answers when the run beside which it is asked has begun; says when it was asked, and when it had its idea."""

    def __init__(self, events: list[str], *edits: Callable[[str], str]) -> None:
        super().__init__(*edits)
        self.events, self.run_began, self.answered = events, threading.Event(), threading.Event()

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        number = len(briefing.history)
        self.events.append(f"asked for {number}")
        if number == 2:
            assert self.run_began.wait(LATE_S)
        proposal = super().ideas(briefing)[0]
        self.events.append(f"idea {number}")
        if number == 2:
            self.answered.set()
        return [proposal]


class Listener(Quiet):
    """Writes down what the driver does; attempt 1 is not scored before the next idea is there."""

    def __init__(self, source: Slow) -> None:
        super().__init__()
        self.source = source
        self.threads = {threading.get_ident()}

    def run_began(self, attempt: Attempt, seed: int, worker: str = LOCAL) -> None:
        self.threads.add(threading.get_ident())
        self.source.events.append(f"run of {attempt.number}")

    def progressed(self, progress: object, elapsed_s: float, worker: str = LOCAL) -> None:
        self.threads.add(threading.get_ident())
        if "run of 1" in self.source.events:
            self.source.run_began.set()

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            self.source.answered.wait(LATE_S)

    def attempt_settled(self, attempt: Attempt, before: Attempt | None) -> None:
        self.source.events.append(f"verdict on {attempt.number}")


def test_the_next_idea_is_made_while_the_current_one_trains(grounds):
    events: list[str] = []
    slow = Slow(events, whole(WORSE), SHARPER)
    with lab_with(grounds, slow, 2, listener := Listener(slow)) as context:
        run_night(context)
    assert events == [
        *("run of 0", "verdict on 0", "asked for 1", "idea 1"),
        *("run of 1", "asked for 2", "idea 2", "verdict on 1", "run of 2", "verdict on 2"),
    ]
    assert [one.parent for one in grounds.attempts("t")] == [None, 0, 0]
    in_flight = slow.told[1].history[1]
    assert (in_flight.done_runs, in_flight.decision) == ((), None)
    assert len(listener.threads) == 1


class Endless(Source):
    """Has its first idea, and none until it is told that nobody waits for another."""

    ended = False

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        if len(briefing.history) > 1:
            deadline = time.monotonic() + LATE_S
            while not self.outbox.stopped() and time.monotonic() < deadline:  # type: ignore[union-attr]
                time.sleep(0.01)
            self.ended = self.outbox.stopped()  # type: ignore[union-attr]
            self.outbox.record_ask(Ask(2, "llm:x", "", 1.0, failure="stopped"))  # type: ignore[union-attr]
        return super().ideas(briefing)


class Stops(Quiet):
    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            self.context.stop.wish("after-run")


def test_a_question_ends_with_the_night_and_what_it_cost_is_known(grounds):
    endless, watcher = Endless(whole(WORSE), SHARPER), Stops()
    with lab_with(grounds, endless, 5, watcher) as context:
        watcher.context = context
        run_night(context)
        assert [ask.failure for ask in context.journal.asks()] == ["stopped"]
        context.stop.forget()
    assert endless.ended
    assert [one.settled for one in grounds.attempts("t")] == [True, True]


# ---- a parent that is no longer the best -----------------------------------------------------------------------------


@pytest.mark.slow
def test_an_idea_that_was_paid_for_is_carried_over_to_the_new_best_script_or_asked_for_again(grounds):
    source = Source(SHARPER, turned(SHARPNESS=0.9), turned(SHARPNESS=1.0), SMOOTHER)
    attempts = night(grounds, source, experiments=3)
    assert [briefing.parent.number for briefing in source.told] == [0, 0, 1, 1]
    assert [one.parent for one in attempts] == [None, 0, 1, 2]
    assert attempts[2].proposal.title == "idea 3"  # the second turns the dial that #1 has turned
    assert dials(attempts[3]) == (1.0, 2.0)


def test_a_source_that_costs_nothing_is_asked_when_the_run_is_over(grounds):
    source = Source(whole(WORSE), SMOOTHER, name="search")
    with lab_with(grounds, source, 2) as context:
        mix = mixed({"search": source}, 0, repairers=(), outbox=context.outbox)
        run_night(dataclasses.replace(context, proposer=mix))
    assert [briefing.history[-1].status for briefing in source.told] == [Status.KEEP, Status.DISCARD]
    assert dials(grounds.attempts("t")[2]) == (0.5, 2.0)


class Paid(Source):
    """Calls somebody before each idea, who wants money for it."""

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.outbox.record_ask(Ask(len(briefing.history), "llm:x", "", 1.0, usd=0.5))  # type: ignore[union-attr]
        return super().ideas(briefing)


class Submits(Quiet):
    """A person who hands in a script while attempt 1 is scored."""

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        if attempt.number == 1:
            submit(self.context.place.queue, unigram(SHARPNESS=0.9), "mine", script="train_mlx.py", now="now")


def test_what_a_person_submits_during_a_run_is_tried_before_what_the_search_made_ahead(grounds):
    watcher = Submits()
    search = Paid(whole(WORSE), SMOOTHER, SMOOTHER, SMOOTHER, name="search")
    with lab_with(grounds, search, 2, watcher) as context:
        watcher.context = context
        queue = Queue(context.place.queue, context.place.nights)
        run_night(
            dataclasses.replace(
                context,
                proposer=mixed(
                    {"queue": queue, "search": search}, 0, first=("queue",), repairers=(), outbox=context.outbox
                ),
            )
        )
    assert [one.proposal.source for one in grounds.attempts("t")][:3] == ["you", "search", "queue: 0001"]


def test_after_a_crash_its_maker_repairs_it_first_and_the_idea_made_ahead_waits(grounds):
    crash = (SCRIPTS / "diverges.py").read_text()
    source = Source(whole(crash), SHARPER, whole(WORSE))
    attempts = night(grounds, source, experiments=3)
    assert [briefing.broken and briefing.broken.number for briefing in source.told] == [None, None, 1]
    assert [one.status for one in attempts] == ["keep", "crash", "discard", "keep"]
    assert attempts[2].proposal.repairs == 1
    assert attempts[3].proposal.title == "idea 2"


# ---- kills -----------------------------------------------------------------------------------------------------------
