"""Several workers get an idea each: asked for together, made ahead, and known once after a kill."""

import dataclasses
import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from asked_ahead import LATE_S, Dies, Source, lab_with
from nights import Grounds, Quiet, unigram

from agent.experiment import Ask, Lease, Proposal
from agent.night.loop import run_night
from agent.pools.local import LocalPool
from agent.proposers.briefing import Briefing
from agent.records.journal import Journal

pytestmark = pytest.mark.usefixtures("own_cache")


class Together(Source):
    """Answers in any thread, once as many questions were asked at once as there are workers."""

    def __init__(self, workers: int, script: Callable[[int], str]) -> None:
        super().__init__()
        self.barrier, self.lock, self.script = threading.Barrier(workers), threading.Lock(), script
        self.workers, self.numbers, self.threads = workers, list[int](), set[int]()

    def ideas(self, briefing: Briefing) -> list[Proposal]:
        with self.lock:
            self.numbers.append(briefing.number)
            self.threads.add(threading.get_ident())
        if briefing.number <= self.workers:
            self.barrier.wait(LATE_S)
        self.outbox.record_ask(Ask(briefing.number, self.name, "", 1.0, usd=0.5))  # type: ignore[union-attr]
        return [Proposal.of(self.script(briefing.number), f"idea {briefing.number}", "", self.name)]


@contextmanager
def parallel_with(grounds: Grounds, source: Source, experiments: int, watcher: Quiet, workers: int) -> Any:
    with lab_with(grounds, source, experiments, watcher) as context:
        leases = (Lease(f"w{number}") for number in range(workers))
        runners = [dataclasses.replace(context.runner, lease=lease) for lease in leases]
        yield dataclasses.replace(context, pool=LocalPool(runners))


def test_workers_that_are_idle_together_are_asked_for_together_and_further_ideas_are_made_ahead(grounds):
    source = Together(2, lambda number: unigram(SHARPNESS=0.5 - number / 100))
    with parallel_with(grounds, source, 4, Quiet(), workers=2) as context:
        run_night(context)
        asks = context.journal.asks()
    attempts = grounds.attempts("t")
    assert sorted(source.numbers) == sorted(ask.attempt for ask in asks) == [1, 2, 3, 4]
    assert threading.get_ident() not in source.threads
    assert sorted(one.proposal.title for one in attempts[1:]) == [f"idea {number}" for number in range(1, 5)]


@pytest.mark.slow
def test_all_ideas_that_were_paid_for_are_tried_once_after_a_kill(grounds):
    path, workers = grounds.folder("t") / "journal.sqlite", 3
    trains = "    while (elapsed := "

    def script(number: int) -> str:
        waits = f"    while {number} <= {workers} and not Path({str(grounds.root / 'gate')!r}).exists():\n"
        return unigram(SHARPNESS=0.5 - number / 100).replace(trains, f"{waits}        time.sleep(0.01)\n{trains}")

    if (dying := os.fork()) == 0:
        with parallel_with(grounds, Together(workers, script), 9, Dies(path, 2), workers) as context:
            run_night(context)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(dying, 0)[1]) == -9
    with Journal.read(path) as journal:
        ideas = journal.waiting_ideas()
    known = {idea.proposal.title for idea in ideas}
    assert len(known) >= 2
    (grounds.root / "gate").touch()
    source = Together(workers, script)
    with parallel_with(grounds, source, 6, Quiet(), workers) as context:
        run_night(context)
        asks = [ask.attempt for ask in context.journal.asks()]
    titles = [one.proposal.title for one in grounds.attempts("t")[1:]]
    assert len(titles) == len(set(titles)) == 6
    assert known <= set(titles)
    # a call may be recorded an instant before its idea is: that one is asked for again, and no other
    again = [number for number in asks if asks.count(number) > 1]
    assert not {idea.asked_for for idea in ideas} & set(again)
    assert all(asks.count(number) <= 2 for number in again)
