"""The next idea is made while a run trains; by when it is due, its parent may have fallen or the night have ended."""

import dataclasses
import os
import threading
import time
from collections.abc import Callable

import pytest
from asked_ahead import LATE_S, Dies, Source, dials, lab_with, night, turned, whole
from nights import SCRIPTS, Quiet, scripted_context, unigram
from sources import mixed

from agent.experiment import LOCAL, Ask, Attempt, Idea, Proposal, Status
from agent.night.limits import Limits
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


@pytest.mark.slow
def test_no_idea_is_asked_for_that_the_night_would_not_try(grounds):
    source = Source(whole(WORSE), SHARPER)
    night(grounds, source, experiments=1)
    assert len(source.told) == 1
    night(grounds, source, experiments=2)
    assert len(source.told) == 2


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


class Computes(Source):
    """Only computes, for longer than anybody would wait, and is asked as a source that costs nothing."""

    ended = threading.Event()

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        if len(briefing.history) > 1:
            self.ended.wait(LATE_S)
        return [Source.ideas(self, briefing)[0]]


def test_a_night_that_ends_does_not_wait_for_a_source_that_only_computes(grounds):
    computes, watcher = Computes(whole(WORSE), SHARPER, name="search"), Stops()
    with lab_with(grounds, computes, 5, watcher) as context:
        watcher.context = context
        source = mixed({"search": computes}, 0, repairers=(), outbox=context.outbox)
        began_s = time.monotonic()
        run_night(dataclasses.replace(context, proposer=source))
        took_s = time.monotonic() - began_s
        context.stop.forget()
    computes.ended.set()
    assert len(computes.told) == 1, "it was still computing"
    assert took_s < LATE_S / 2


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


@pytest.mark.slow
def test_what_the_search_made_after_a_call_that_was_paid_for_is_taken(grounds):
    search, model = Source(whole(WORSE), SMOOTHER, name="search"), Paid()
    with lab_with(grounds, model, 2) as context:
        sources = {"llm": model, "search": search}
        mix = mixed(sources, 0, last=("search",), repairers=("llm",), outbox=context.outbox)
        run_night(dataclasses.replace(context, proposer=mix))
        assert [ask.attempt for ask in context.journal.asks()] == [1, 2]
    assert [briefing.history[-1].decision is None for briefing in search.told] == [False, True]
    assert dials(grounds.attempts("t")[2]) == (0.5, 2.0)


class Fails(Source):
    """Wants money for each call, and has no idea until the attempt in flight is settled."""

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        self.outbox.record_ask(Ask(len(briefing.history), "llm:x", "", 1.0, usd=0.5))  # type: ignore[union-attr]
        if briefing.history[-1].decision is None:
            raise RuntimeError("none")
        return super().ideas(briefing)


class Patient(Quiet):
    """Lets a question come to its end before anything else is begun."""

    def scoring_began(self, attempt: Attempt, worker: str = LOCAL) -> None:
        deadline = time.monotonic() + LATE_S
        while any("question" in one.name for one in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.01)


def test_a_source_that_has_no_idea_ahead_is_asked_once_beside_a_run_and_once_in_its_turn(grounds):
    source = Fails(whole(WORSE), SHARPER)
    with lab_with(grounds, source, 2, Patient()) as context:
        run_night(context)
        assert [ask.attempt for ask in context.journal.asks()] == [1, 2, 2]
    assert [one.status for one in grounds.attempts("t")] == ["keep", "discard", "keep"]


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


@pytest.mark.slow
def test_it_is_tried_before_a_further_idea_of_an_answer_too_which_then_comes_without_another_question(grounds):
    watcher, asked = Submits(), []

    class Explores:
        def ideas(self, briefing: Briefing) -> list[Proposal]:
            asked.append(len(briefing.history))
            script = briefing.parent.proposal.script
            return [
                Proposal.of(edit(script), f"idea {number}", "", "explore:x")
                for number, edit in enumerate((SMOOTHER, turned(SHARE=0.5)), 1)
            ]

    with lab_with(grounds, Source(), 3, watcher) as context:
        watcher.context = context
        queue = Queue(context.place.queue, context.place.nights)
        sources = {"queue": queue, "explore": Explores()}
        mix = mixed(sources, 0, first=("queue",), repairers=("explore",), outbox=context.outbox)
        run_night(dataclasses.replace(context, proposer=mix))
    titles = [one.proposal.title for one in grounds.attempts("t")]
    assert titles == ["baseline", "idea 1", "mine", "idea 2"]
    assert asked == [1]


def test_after_a_crash_its_maker_repairs_it_first_and_the_idea_made_ahead_waits(grounds):
    crash = (SCRIPTS / "diverges.py").read_text()
    source = Source(whole(crash), SHARPER, whole(WORSE))
    attempts = night(grounds, source, experiments=3)
    assert [briefing.broken and briefing.broken.number for briefing in source.told] == [None, None, 1]
    assert [one.status for one in attempts] == ["keep", "crash", "discard", "keep"]
    assert attempts[2].proposal.repairs == 1
    assert attempts[3].proposal.title == "idea 2"


# ---- kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_was_paid_for_is_known_once_and_tried_after_a_kill(grounds):
    journal = grounds.folder("t") / "journal.sqlite"
    if (dying := os.fork()) == 0:
        with lab_with(grounds, Paid(whole(WORSE), SHARPER), 2, Dies(journal)) as context:
            run_night(context)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -9
    assert len(grounds.attempts("t")) == 2
    source = Paid()
    attempts = night(grounds, source, experiments=2)
    assert source.told == []
    assert (attempts[2].proposal.title, attempts[2].status) == ("idea 2", Status.KEEP)
    with scripted_context(grounds.root, "t", []) as context:
        assert [ask.attempt for ask in context.journal.asks()] == [1, 2]
        assert context.journal.waiting_ideas() == ()


def test_what_was_paid_for_is_tried_where_a_free_source_is_asked_now_and_not_in_place_of_a_try(grounds):
    for source, experiments in (
        (Source(whole(unigram(SHARPNESS=0.3)), name="queue"), 1),
        (Source(SMOOTHER, name="search"), 3),
    ):
        with scripted_context(grounds.root, "t", []) as context:
            if source.name == "queue":
                grounds.try_scripts("t", [])  # attempt 0, which the idea edits
                context.journal.add_idea(Idea(0, 0, Proposal(BETTER, "paid", "", "llm:x"), asked_for=1))
            limits, asks_sources = Limits(experiments=experiments), source.name != "queue"
            run_night(dataclasses.replace(context, proposer=source, limits=limits, asks_sources=asks_sources))
    tried = [(one.proposal.source, one.proposal.title) for one in grounds.attempts("t")[1:]]
    assert tried == [("queue", "idea 1"), ("llm:x", "paid"), ("search", "idea 1")]
