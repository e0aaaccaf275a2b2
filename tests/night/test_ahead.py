"""The next ideas are made while scripts train, in other threads; what was paid for outlasts a kill."""

import dataclasses
import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nights import Grounds, Quiet, scripted_context, unigram
from sources import LATE_S

from agent.experiment import LOCAL, Ask, Attempt, Lease, Proposal
from agent.night.limits import Limits
from agent.night.loop import run_night
from agent.pools.pool import LocalPool
from agent.proposers.source import Briefing, Messages, Source
from agent.records.journal import Journal

pytestmark = pytest.mark.usefixtures("own_cache")


@contextmanager
def night_with(grounds: Grounds, source: Any, experiments: int, watcher: Quiet, workers: int = 1) -> Any:
    with scripted_context(grounds.root, "t", []) as context:
        source.messages = Messages(context.journal.record_ask, lambda: context.stop.after_run)
        runner = dataclasses.replace(context.runner, progressed=watcher.progressed)
        runners = [dataclasses.replace(runner, lease=Lease(f"w{number}")) for number in range(workers)]
        yield dataclasses.replace(
            context,
            sources=[source],
            messages=source.messages,
            watcher=watcher,
            runner=runner,
            limits=Limits(experiments=experiments),
            pool=LocalPool(runners) if workers > 1 else None,
        )


class Slow(Source):
    """Answers when the run beside which it is asked has begun; says when it was asked, and when it had its idea."""

    name, costs = "llm", True

    def __init__(self, events: list[str]) -> None:
        self.events, self.run_began, self.answered = events, threading.Event(), threading.Event()
        self.told: list[Briefing] = []

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        number = len(briefing.history)
        self.told.append(briefing)
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
    slow = Slow(events)
    with night_with(grounds, slow, 2, listener := Listener(slow)) as context:
        run_night(context)
    assert events == [
        *("run of 0", "verdict on 0", "asked for 1", "idea 1"),
        *("run of 1", "asked for 2", "idea 2", "verdict on 1", "run of 2", "verdict on 2"),
    ]
    in_flight = slow.told[1].history[1]
    assert (in_flight.done_runs, in_flight.decision) == ((), None)
    assert len(listener.threads) == 1


# ---- several workers -------------------------------------------------------------------------------------------------


class Together(Source):
    """Answers in any thread, once as many questions were asked at once as there are workers."""

    name, costs, at_once = "llm", True, None

    def __init__(self, workers: int, script: Callable[[int], str]) -> None:
        self.barrier, self.lock, self.script = threading.Barrier(workers), threading.Lock(), script
        self.workers, self.asked = workers, 0

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        with self.lock:
            self.asked += 1
            is_first = self.asked <= self.workers
        if is_first:
            self.barrier.wait(LATE_S)
        number = 1 + max((int(one.proposal.title[5:] or 0) for one in briefing.history[1:]), default=0)
        with self.lock:
            self.messages.record(Ask(briefing.number, "llm:x", "", 1.0, usd=0.5))
        number = max(number, briefing.number)
        return [Proposal(self.script(number), f"idea {number}", "", "llm:x")]


class Dies(Quiet):
    """Is killed as soon as so many ideas wait in the journal, while attempt 1 trains."""

    def __init__(self, journal: Path, ideas: int) -> None:
        super().__init__()
        self.journal, self.ideas = journal, ideas

    def progressed(self, progress: object, elapsed_s: float, worker: str = LOCAL) -> None:
        with Journal.read(self.journal) as journal:
            if len(journal.attempts()) > 1 and len(journal.waiting_ideas()) >= self.ideas:
                os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_all_ideas_that_were_paid_for_are_tried_once_after_a_kill(grounds):
    path, workers = grounds.folder("t") / "journal.sqlite", 3
    trains = "    while (elapsed := "

    def script(number: int) -> str:
        waits = f"    while {number} <= {workers} and not Path({str(grounds.root / 'gate')!r}).exists():\n"
        return unigram(SHARPNESS=0.5 - number / 100).replace(trains, f"{waits}        time.sleep(0.01)\n{trains}")

    if (dying := os.fork()) == 0:
        with night_with(grounds, Together(workers, script), 9, Dies(path, 2), workers) as context:
            run_night(context)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -9
    with Journal.read(path) as journal:
        known = {idea.proposal.title for idea in journal.waiting_ideas()}
    assert len(known) >= 2
    (grounds.root / "gate").touch()
    with night_with(grounds, Together(1, script), 6, Quiet(), workers) as context:
        run_night(context)
        assert context.journal.waiting_ideas() == ()
        asks = len(context.journal.asks())
    titles = [one.proposal.title for one in grounds.attempts("t")[1:]]
    assert len(titles) == len(set(titles)) == 6
    assert known <= set(titles)
    assert asks <= 6 + workers  # a call may be recorded an instant before its idea is
