"""A simulated night: plan and judge as in a real one, of any number of workers, in a world where the truth is known.

Whenever a worker is free, it begins what agent/night/plan.py would begin: a further seed of an undecided attempt, the
run that second thoughts ask for, a merge, or an edit of the best script as it is then. So each edit is made from the
best script of its time, and one that is overtaken is merged and has to win again. What edits there are and what their
runs score is for the world to say (judge_power.py and landscapes.py have one each).
"""

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from agent.experiment import Attempt, Decision, History, Kind, Proposal, best_of
from agent.judging.judges import Judge
from agent.night.merging import EXPECTED, tip
from agent.script.dials import outline_of

LENGTHS = 0.95, 1.05  # of a run: attempts end in an order that is not quite that of their beginnings


class World(Protocol):
    """Say what is true in one night."""

    seed: int

    def propose(self, history: History, parent: Attempt | None) -> Proposal:
        """Make an edit of a script, or the first script."""

    def merge(self, overtaken: Attempt, onto: Attempt, history: History) -> Proposal | None:
        """Make an edit that was overtaken in another script; None where the two conflict."""

    def run(self, attempt: Attempt, history: History) -> Attempt:
        """Return the attempt, measured once more."""


class Night:
    """Simulate one night of so many runs."""

    def __init__(self, world: World, judge: Judge, runs: int, workers: int = 1) -> None:
        self.world, self.judge, self.runs, self.workers = world, judge, runs, workers
        self.history: list[Attempt] = []
        self.begun = self.ended = 0  # runs
        self._in_flight: list[tuple[float, int]] = []  # when a run ends, and its attempt
        self._unjudged: set[int] = set()  # measured since they were judged last
        self._again: int | None = None
        self._decisions = 0

    def simulate(self, watch: Callable[["Night"], None] = lambda night: None) -> "Night":
        """Begin runs until none is left; show the night after each of them."""
        order, now = np.random.default_rng((self.world.seed, self.workers)), 0.0
        self._enter(self.world.propose(self.history, None), None)
        while True:
            while self.begun < self.runs and len(self._in_flight) < self.workers:
                number = self._next_attempt()
                if number is None:
                    break
                self.begun += 1
                heapq.heappush(self._in_flight, (now + order.uniform(*LENGTHS), number))
            if not self._in_flight:
                return self
            now, number = heapq.heappop(self._in_flight)
            self.history[number] = self.world.run(self.history[number], self.history)
            self.ended += 1
            if self.history[number].decision is None:
                self._unjudged.add(number)
            self._decide()
            watch(self)

    # ---- what begins -------------------------------------------------------------------------------------------------

    def _next_attempt(self) -> int | None:
        """Return the attempt whose run begins now; None if one in flight has to end before."""
        busy = {number for _, number in self._in_flight}
        first, best = self.history[0], best_of(self.history)
        if first.decision is None or best is None:
            begun = len(first.runs) + len(self._in_flight)
            return 0 if begun < self.judge.calibration and (first.runs or not begun) else None
        undecided = [attempt for attempt in self.history if attempt.decision is None]
        waiting = (attempt.number for attempt in undecided if attempt.number not in busy | self._unjudged)
        if (number := next(waiting, None)) is not None:
            return number
        if self._again is not None and self._again not in busy:
            return self._again
        merged = {attempt.proposal.merges for attempt in self.history if attempt.kind is not Kind.ORPHANED}
        overtaken = [a for a in self.history if a.kind is Kind.OVERTAKEN and a.number not in merged]
        for attempt in sorted(overtaken, key=lambda attempt: (-(attempt.sure or 0.0), attempt.number)):
            onto = tip(undecided, self.history, best)
            proposal = self.world.merge(attempt, onto, self.history)
            if proposal is not None:
                return self._enter(replace(proposal, merges=attempt.number), onto)
            self._record(attempt.number, Decision(Kind.STALE, "it conflicts"))
        if self.runs - self.begun <= EXPECTED * len(busy):
            return None
        return self._enter(self.world.propose(self.history, best), best)

    def _enter(self, proposal: Proposal, parent: Attempt | None) -> int:
        above, outline = parent.number if parent else None, outline_of(proposal.script, "cpu")
        self.history.append(Attempt(len(self.history), above, proposal, "", commit="c", outline=outline))
        return len(self.history) - 1

    # ---- what is decided ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Judge what was measured, and think again, until that changes nothing."""
        before = -1
        while before != self._decisions:
            before = self._decisions
            for number in sorted(self._unjudged):
                parent = self.history[number].parent
                if parent is None or self.history[parent].decision is not None:
                    self._judge(number)
            review = self.judge.review(self.history)
            for number in sorted(review.decisions, reverse=True):
                self._record(number, review.decisions[number])
            self._again = next(iter(review.again), None)

    def _judge(self, number: int) -> None:
        self._unjudged.discard(number)
        attempt = self.history[number]
        if number == 0 and len(attempt.runs) < self.judge.calibration:
            return
        decision = self.judge.judge(attempt, [other for other in self.history if other is not attempt])
        if decision.status is not None:
            self._record(number, decision)

    def _record(self, number: int, decision: Decision) -> None:
        self._decisions += 1
        decisions = (*self.history[number].decisions, replace(decision, id=self._decisions))
        self.history[number] = replace(self.history[number], settled=True, decisions=decisions)
