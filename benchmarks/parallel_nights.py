"""Simulated nights with several workers, for judge_power.py: attempts end in any order, and the judge is the real one.

Whenever a worker is free, it begins what agent/night/plan.py would begin: a further seed of an undecided attempt, the
run that second thoughts ask for, a merge, or an edit of the incumbent as it is then. So each edit is made from the
incumbent of its time, and one that is overtaken is merged and has to win again.

judge_power.py has nights with 1, 4 and 16 workers judged by balanced, in the usual scenario. Keys of its JSON, for each
number of workers W:

  async_gain_W              the true gain of 96 runs, in sigma
  async_cost_W              the share of the gain of one worker that is lost, and async_cost_W_error, its standard error
  async_cost_W_calibrated   the same where W workers calibrate as real nights do, with 1 + W runs
  async_merges_W            merges
  hours_gain_W              the true gain in the time of 24 runs, in which W workers make W times as many, calibrated so
"""

from __future__ import annotations

import argparse
import heapq
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import measure
import numpy as np
from simulated import MIXTURES, RUNS, World

from agent.experiment import Attempt, Decision, Entry, Judge, Kind, Proposal, incumbent
from agent.judging.judges import Balanced
from agent.night.limits import calibration_runs
from agent.night.merging import EXPECTED, sureness, tip

WORKERS = 1, 4, 16
HOURS = 24  # lengths of a run
CALIBRATION = Balanced().calibration
LENGTHS = 0.95, 1.05  # of a run: attempts end in an order that is not quite that of their beginnings


@dataclass
class ParallelNight:
    """Hold one night, and simulate it."""

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
            undecided = [one for one in self.history if one.decision is None]
            parent = tip(undecided, self.history, best).number
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
    def merges(self) -> int:
        return sum(one.proposal.merges is not None for one in self.history)


# ---- many nights -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parallel:
    """Hold how the same edits ended with several workers."""

    gain: float  # sigma
    calibrated: float  # the gain where attempt 0 has a run beside itself on every worker
    merges: int


def simulated(seed: int, workers: int, runs: int, calibration: int) -> ParallelNight:
    night = ParallelNight(Balanced(), World(seed, MIXTURES["usual"], False, edits=runs), workers, runs, calibration)
    night.simulate()
    return night


def simulate_parallel(job: tuple[int, int]) -> Parallel:
    seed, workers = job
    plain = simulated(seed, workers, RUNS, CALIBRATION)
    real = plain if workers == 1 else simulated(seed, workers, RUNS, calibration_runs(CALIBRATION, workers))
    return Parallel(plain.true_gain, real.true_gain, plain.merges)


def simulate_hours(job: tuple[int, int]) -> float:
    seed, workers = job
    return simulated(seed, workers, HOURS * workers, calibration_runs(CALIBRATION, workers)).true_gain


def compare_workers(args: argparse.Namespace, pool: ProcessPoolExecutor) -> measure.Flat:
    flat: measure.Flat = {"parallel_nights": args.parallel_nights}
    seeds = range(args.first_seed, args.first_seed + args.parallel_nights)
    alone = np.zeros(0)
    for workers in WORKERS if seeds else ():
        measure.say(f"{len(seeds)} nights: {workers} worker{'s' * (workers > 1)}")
        found = list(pool.map(simulate_parallel, [(seed, workers) for seed in seeds]))
        gains = np.array([one.gain for one in found])
        alone = gains if workers == 1 else alone
        flat[f"async_gain_{workers}"] = float(gains.mean())
        flat[f"async_merges_{workers}"] = float(np.mean([one.merges for one in found]))
        if workers > 1:
            lost = (alone - gains) / alone.mean()
            flat[f"async_cost_{workers}"] = float(lost.mean())
            flat[f"async_cost_{workers}_error"] = float(lost.std()) / math.sqrt(len(seeds))
            calibrated = float(np.mean([one.calibrated for one in found]))
            flat[f"async_cost_{workers}_calibrated"] = 1 - calibrated / float(alone.mean())
        some = seeds[: max(1, len(seeds) // 5)]
        flat[f"hours_gain_{workers}"] = float(np.mean(list(pool.map(simulate_hours, [(one, workers) for one in some]))))
    return flat


def print_workers(flat: measure.Flat) -> None:
    columns = ("workers", "true gain, σ", "cost", "with their calibration", "merges", f"gain in {HOURS} runs' time")
    rows = []
    for workers in WORKERS:
        cost = calibrated = "-"
        if workers > 1:
            cost = f"{flat[f'async_cost_{workers}']:.1%} ± {flat[f'async_cost_{workers}_error']:.1%}"
            calibrated = f"{flat[f'async_cost_{workers}_calibrated']:.1%}"
        gain, hours = (f"{flat[f'{name}_gain_{workers}']:.2f}" for name in ("async", "hours"))
        rows.append([str(workers), gain, cost, calibrated, f"{flat[f'async_merges_{workers}']:.1f}", hours])
    measure.print_table(f"several workers, {flat['parallel_nights']} nights of {RUNS} runs", columns, rows)
