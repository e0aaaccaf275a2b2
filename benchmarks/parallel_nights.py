"""Simulated nights with several workers, for judge_power.py: attempts end in any order, and the judge is the real one.

Whenever a worker is free, it begins what agent/night/plan.py would begin: a further seed of an undecided attempt, the
second thoughts' run, a merge (agent/night/merging.py), or an edit of the incumbent as it is then.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np
from simulated import World

from agent.experiment import Attempt, Decision, Entry, Judge, Kind, Proposal, Status, incumbent
from agent.night.merging import EXPECTED, first_of, sureness, tip

LENGTHS = 0.95, 1.05  # of a run: attempts end in an order that is not quite that of their beginnings


@dataclass
class ParallelNight:
    judge: Judge
    world: World
    workers: int
    runs: int
    calibration: int  # runs of attempt 0
    history: list[Attempt] = field(default_factory=list)
    flight: list[tuple[float, int]] = field(default_factory=list)  # when a run ends, and its attempt
    begun: int = 0  # runs
    now: float = 0.0  # in lengths of a run
    _unjudged: set[int] = field(default_factory=set)  # measured since they were judged last
    _again: int | None = None
    _decisions: int = 0

    def simulate(self) -> None:
        """Begin runs until there are no more."""
        order = np.random.default_rng((self.world.seed, self.workers))
        self._enter(None)
        while True:
            while self.begun < self.runs and len(self.flight) < self.workers:
                number = self._next_attempt()
                if number is None:
                    break
                self.begun += 1
                heapq.heappush(self.flight, (self.now + order.uniform(*LENGTHS), number))
            if not self.flight:
                return
            self.now, number = heapq.heappop(self.flight)
            self.history[number] = self.world.run(self.history[number], self.history)
            if self.history[number].decision is None:
                self._unjudged.add(number)
            self._decide()

    # ---- what begins -------------------------------------------------------------------------------------------------

    def _next_attempt(self) -> int | None:
        """Return the attempt whose run begins now; None if one in flight has to end before."""
        busy = {number for _, number in self.flight}
        first = self.history[0]
        if first.decision is None:
            begun = len(first.runs) + len(self.flight)
            return 0 if begun < self.calibration and (first.runs or not begun) else None
        undecided = (one.number for one in self.history if one.decision is None)
        waiting = next((number for number in undecided if number not in busy | self._unjudged), None)
        if waiting is not None:
            return waiting
        if self._again is not None and self._again not in busy:
            return self._again
        merged = {one.proposal.merges for one in self.history if one.kind is not Kind.ORPHANED}
        overtaken = [one for one in self.history if one.kind is Kind.OVERTAKEN and one.number not in merged]
        if overtaken:
            return self._enter(max(overtaken, key=sureness))
        return None if self.runs - self.begun <= EXPECTED * len(busy) else self._enter(None)

    def _enter(self, overtaken: Attempt | None) -> int:
        number, best = len(self.history), incumbent(self.history)
        parent = best.number if best is not None else None
        if overtaken is None:
            proposal = Proposal("", "", "", f"source {self.world.sources[number]}")
        else:
            assert best is not None
            undecided = [one.number for one in self.history if one.decision is None]
            parent = tip(self.history, undecided, best).number
            proposal = replace(overtaken.proposal, merges=overtaken.number)
        self.history.append(Attempt(number, parent, proposal, "", commit="c"))
        return number

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
            self._again = review.again

    def _judge(self, number: int) -> None:
        self._unjudged.discard(number)
        attempt = self.history[number]
        if number == 0 and len(attempt.runs) < self.calibration:
            return
        decision = self.judge.judge(attempt, [one for one in self.history if one is not attempt])
        if decision.status is not None:
            self._record(number, decision)

    def _record(self, number: int, decision: Decision) -> None:
        self._decisions += 1
        made = (*self.history[number].decisions, Entry(self._decisions, None, decision))
        self.history[number] = replace(self.history[number], decision=decision, settled=True, decisions=made)

    # ---- what came of it ---------------------------------------------------------------------------------------------

    @property
    def true_gain(self) -> float:
        """In sigma."""
        best = incumbent(self.history)
        return 0.0 if best is None else self.world.merit(best, self.history)

    @property
    def merges(self) -> list[Attempt]:
        return [one for one in self.history if one.proposal.merges is not None]

    @property
    def keeps(self) -> list[Attempt]:
        return [one for one in self.history[1:] if one.status is Status.KEEP]

    def worth(self, attempt: Attempt) -> float:
        return self.world.worth(first_of(attempt, self.history).number)
