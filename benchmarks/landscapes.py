"""How proposers of dials do in simulated nights, where the truth is known: what the search's design was decided by.

    python benchmarks/landscapes.py [--nights 12] [--runs 40 96] [--judge greedy] [--arms search random …]
                                    [--kinds bowl …] [--workers 1 4 16] [--processes 2] [--quick] [--json FILE]

A landscape is a bowl over the project's own dials, of which four to six matter; two pairs of them act together, and
beyond a cliff a run crashes. Everything is in sigma, the noise of one run; each proposer has the same landscapes and
noise. The project's own judges decide; runs that repeat an attempt count as runs. Gains are the champion's true ones.
With several workers, a proposal does not know the results of the runs in flight, and an edit whose parent is no longer
the best is merged onto the best script. Attempt 0 has the runs that it has with one worker.

    bowl     8 sigma to be had        loud    4        quiet    30        tuned    3, and close by
    short    30, most of it in BATCH_ROWS, DEPTH and ASPECT_RATIO         cliffs   10, and six cliffs
    edges    10, and every fourth dial has a cliff, above or below: not part of the mean over the kinds

    search   agent/proposers/search/search.py           random   one to three dials from their whole ranges
    steps    one to three dials, a small step    tpe      Optuna's TPE over all dials at once (multivariate)
    cma      CMA-ES over all dials at once (separable, from the start's dials, sigma an eighth of a range)

Flat keys of --json, for each arm (search_w4 with four workers) and number of runs: ARM_RUNS_share, the mean over the
first six kinds of the share of what was to be had; ARM_RUNS_share_stderr, its standard error; ARM_RUNS_tried, the same
for the best place that was tried; ARM_RUNS_crashes of a night, and ARM_RUNS_attempts; ARM_KIND_RUNS_gain,
ARM_KIND_RUNS_stderr.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nights are simulated side by side

import cmaes
import measure
import numpy as np
import optuna
from terrain import DIALS, GAINS, KIND, NAMES, SCRIPT, START, Landscape, Place, place_of, script_at

from agent.experiment import Attempt, Decision, Ending, Kind, Night, Noise, Proposal, Run, Score, Status, incumbent
from agent.judging.judges import JUDGES, choose_judge
from agent.judging.noise import noise as noise_of
from agent.proposers.briefing import Briefing
from agent.proposers.search.search import Search
from agent.script.dials import tried_as
from agent.script.merge import merged

MEANT = tuple(GAINS)[:6]  # the kinds that a share is the mean over
SIGMA_BPB, BEST_BPB = 0.005, 1.0
NIGHT = Night("simulated", "", "train_mlx.py", "", 300.0, 0, KIND, "", "", "", "")
Propose = Callable[[Briefing], Proposal]

optuna.logging.set_verbosity(optuna.logging.ERROR)


# ---- who proposes ----------------------------------------------------------------------------------------------------


def turning(reach: float | None) -> Callable[[int], Propose]:
    """One to three dials, anywhere or by a step of at most this share of the range."""

    def make(seed: int) -> Propose:
        def propose(briefing: Briefing) -> Proposal:
            rng, parent = random.Random(f"{seed} {len(briefing.history)}"), briefing.parent.proposal.script
            while True:
                place = place_of(parent).copy()
                for i in rng.sample(range(len(DIALS)), rng.randint(1, 3)):
                    place[i] = rng.random() if reach is None else place[i] + rng.uniform(-reach, reach)
                if (script := script_at(place, parent)) != parent:
                    return Proposal(script, "", "", "")

        return propose

    return make


def seen(briefing: Briefing) -> list[tuple[Place, float]]:
    """Every attempt's place and score; a crash counts as a sigma worse than the worst."""
    worst = max(attempt.val_bpb for attempt in briefing.history if attempt.val_bpb is not None) + SIGMA_BPB
    return [
        (np.clip(place_of(attempt.proposal.script), 0, 1), worst if attempt.val_bpb is None else attempt.val_bpb)
        for attempt in briefing.history
    ]


def tpe(seed: int) -> Propose:
    axes: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(0, 1) for name in NAMES
    }

    def propose(briefing: Briefing) -> Proposal:
        sampler = optuna.samplers.TPESampler(seed=seed + len(briefing.history), multivariate=True, n_startup_trials=8)
        study = optuna.create_study(sampler=sampler)
        for place, score in seen(briefing):
            params = dict(zip(NAMES, place.tolist(), strict=True))
            study.add_trial(optuna.trial.create_trial(params=params, distributions=axes, value=score))
        place = np.array(list(study.ask(axes).params.values()))
        return Proposal(script_at(place, briefing.parent.proposal.script), "", "", "")

    return propose


def cma(seed: int, generation: int = 8) -> Propose:
    def propose(briefing: Briefing) -> Proposal:
        bounds = np.array([[0.0, 1.0]] * len(DIALS))
        sampler = cmaes.SepCMA(mean=START.copy(), sigma=0.125, bounds=bounds, seed=seed + 1, population_size=generation)
        told = seen(briefing)[1:]
        for begin in range(0, len(told) - generation + 1, generation):
            sampler.tell(told[begin : begin + generation])
        for _ in range(len(told) % generation):
            sampler.ask()
        return Proposal(script_at(sampler.ask(), briefing.parent.proposal.script), "", "", "")

    return propose


ARMS: dict[str, Callable[[int], Propose]] = {
    "search": lambda seed: lambda briefing: Search(KIND, seed).ideas(briefing)[0],
    "random": turning(None),
    "steps": turning(0.25),
    "tpe": tpe,
    "cma": cma,
}
ONE_BY_ONE = frozenset({"tpe", "cma"})  # arms that need the result of each proposal before the next


# ---- nights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    gain: float  # sigma, the champion's true one
    tried: float  # sigma, of the best place that was tried
    crashes: int
    attempts: int


class SimulatedNight:
    """Runs, judges and keeps as a night does; only the scores are drawn from a landscape.

    All runs take the same time: with several workers, a proposal does not know the results of the runs in flight.
    """

    def __init__(self, kind: str, seed: int, judge: str, workers: int = 1) -> None:
        self._land, self._noise = Landscape(kind, seed), random.Random(f"noise {kind} {seed}")
        self._judge, self._told = choose_judge(judge), judge == "greedy"  # it repeats no run that would tell sigma
        self._workers = workers
        self.history: list[Attempt] = []
        self._flight = deque[int]()  # attempts that are being measured, the first to end first
        self._runs, self._outcomes = 0, dict[int, Outcome]()

    def live(self, propose: Propose, marks: Sequence[int]) -> dict[int, Outcome]:
        """Number of runs → what the night has come to then."""
        while self._runs < max(marks):
            while len(self._flight) < (self._workers if incumbent(self.history) else 1):
                self._flight.append(self._next(propose))
            number = self._flight.popleft()
            attempt = self.history[number] = self._measured(self.history[number])
            if attempt.decision is None:
                decision = self._judge.judge(attempt, (*self.history[:number], *self.history[number + 1 :]))
                if decision.status is None:
                    self._flight.append(number)
                else:
                    self.history[number] = replace(attempt, decision=decision, settled=True)
            if self.history[number].decision is not None:
                self._review()
            if self._runs in marks:
                self._note()
        return self._outcomes

    def _next(self, propose: Propose) -> int:
        """The attempt to be measured next: what the judge doubts, what was overtaken, or a new idea."""
        again = self._review()
        if again is not None and again not in self._flight:
            return again
        best = incumbent(self.history)
        proposal = (
            Proposal(SCRIPT, "", "", "you") if best is None else self._merge(best) or propose(self._briefing(best))
        )
        self.history.append(Attempt(len(self.history), best.number if best else None, proposal, "", "c"))
        return len(self.history) - 1

    def _merge(self, best: Attempt) -> Proposal | None:
        """The first overtaken edit that is not merged yet, made in the best script; one that conflicts is stale."""
        known = {one.proposal.merges for one in self.history}
        for one in self.history:
            if one.kind is not Kind.OVERTAKEN or one.number in known:
                continue
            base, script = self.history[one.parent or 0], one.proposal.script
            found = merged(best.proposal.script, base.proposal.script, script, KIND) if base is not best else None
            if found is not None and tried_as(found, self.history) is None:
                return replace(one.proposal, script=found, merges=one.number)
            self.history[one.number] = replace(one, decision=Decision(Kind.STALE, "it conflicts"))
        return None

    def _review(self) -> int | None:
        """Follow the judge's review; the attempt that it wants to measure again."""
        while True:
            review = self._judge.review(self.history)
            for number, decision in review.decisions.items():
                self.history[number] = replace(self.history[number], decision=decision)
            if not review.decisions:
                return review.again

    def _briefing(self, best: Attempt) -> Briefing:
        known = Noise(SIGMA_BPB, 5, 2.8 * SIGMA_BPB) if self._told else noise_of(self.history)
        return Briefing(NIGHT, tuple(self.history), best, noise=known)

    def _measured(self, attempt: Attempt) -> Attempt:
        """The attempt with one run more."""
        place, error = place_of(attempt.proposal.script), self._noise.gauss(0, 1)
        score = (
            None if self._land.crashes(place) else Score(BEST_BPB + SIGMA_BPB * (self._land.loss(place) + error), 1.0)
        )
        ending = Ending.FINISHED if score else Ending.CRASHED
        self._runs += 1
        run = Run(len(attempt.runs), ending, 0 if score else 1, 1.0, None, "", score)
        return replace(attempt, runs=(*attempt.runs, run))

    def _note(self) -> None:
        """Set down how things stand; the last word after a run counts."""
        champion, start = incumbent(self.history), self._land.loss(START)
        places = [place_of(one.proposal.script) for one in self.history if one.scores_bpb]
        self._outcomes[self._runs] = Outcome(
            start - self._land.loss(place_of(champion.proposal.script)) if champion else 0.0,
            start - min(map(self._land.loss, places), default=start),
            sum(one.status is Status.CRASH for one in self.history),
            sum(bool(one.runs) for one in self.history),
        )


Job = tuple[str, int, str, int, str, tuple[int, ...]]  # arm, workers, kind of landscape, seed, judge, marks


def live_through(job: Job) -> dict[int, Outcome]:
    arm, workers, kind, seed, judge, marks = job
    return SimulatedNight(kind, seed, judge, workers).live(ARMS[arm](seed), marks)


def named(arm: str, workers: int) -> str:
    return arm if workers == 1 else f"{arm}_w{workers}"


def compare(args: argparse.Namespace) -> measure.Flat:
    jobs = [
        (arm, workers, kind, seed, args.judge, tuple(args.runs))
        for seed in args.seeds
        for kind in args.kinds
        for arm in args.arms
        for workers in args.workers
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        found: dict[tuple[str, str], list[dict[int, Outcome]]] = {}
        for (arm, workers, kind, seed, *_), outcome in zip(jobs, pool.map(live_through, jobs), strict=True):
            found.setdefault((named(arm, workers), kind), []).append(outcome)
            measure.say(f"{named(arm, workers)}: {kind} {seed}")
    flat: measure.Flat = {}
    for arm in arms(args):
        for runs in args.runs:
            flat |= summary(f"{arm}_{runs}", {kind: [one[runs] for one in found[arm, kind]] for kind in args.kinds})
            for kind in args.kinds:
                gains = [one[runs].gain for one in found[arm, kind]]
                flat[f"{arm}_{kind}_{runs}_gain"] = statistics.fmean(gains)
                flat[f"{arm}_{kind}_{runs}_stderr"] = stderr(gains)
    return flat


def arms(args: argparse.Namespace) -> list[str]:
    """Each arm with each number of workers, by the names of the keys."""
    return [named(arm, workers) for arm in args.arms for workers in args.workers]


def summary(prefix: str, nights: dict[str, list[Outcome]]) -> measure.Flat:
    """Of one arm after so many runs, over the kinds."""
    meant = {kind: ones for kind, ones in nights.items() if kind in MEANT} or nights
    shares = {kind: [one.gain / GAINS[kind] for one in ones] for kind, ones in meant.items()}
    errors = [stderr(one) for one in shares.values()]
    known = [error for error in errors if error is not None]

    def mean(of: Callable[[str, Outcome], float]) -> float:
        return statistics.fmean(statistics.fmean(of(kind, one) for one in ones) for kind, ones in meant.items())

    return {
        f"{prefix}_share": mean(lambda kind, one: one.gain / GAINS[kind]),
        f"{prefix}_share_stderr": math.hypot(*known) / len(errors) if len(known) == len(errors) else None,
        f"{prefix}_tried": mean(lambda kind, one: one.tried / GAINS[kind]),
        f"{prefix}_crashes": mean(lambda kind, one: one.crashes),
        f"{prefix}_attempts": mean(lambda kind, one: one.attempts),
    }


def stderr(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    def with_error(key: str, error_key: str, form: str) -> str:
        error = flat[error_key]
        return measure.show(flat[key], form) + ("" if error is None else f" ± {measure.show(error, form)}")

    for runs in args.runs:
        rows = [
            [
                arm,
                *(with_error(f"{arm}_{kind}_{runs}_gain", f"{arm}_{kind}_{runs}_stderr", ".1f") for kind in args.kinds),
                with_error(f"{arm}_{runs}_share", f"{arm}_{runs}_share_stderr", ".0%"),
                *(
                    measure.show(flat[f"{arm}_{runs}_{key}"], form)
                    for key, form in (("tried", ".0%"), ("crashes", ".1f"), ("attempts", ".0f"))
                ),
            ]
            for arm in arms(args)
        ]
        title = (
            f"True gain in sigma of {len(args.seeds)} nights after {runs} runs, judge {args.judge} (± standard error)"
        )
        columns = ("", *(f"{kind}, {GAINS[kind]:g} to be had" for kind in args.kinds))
        measure.print_table(title, (*columns, "of what was to be had", "best tried", "crashes", "attempts"), rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, help="on each kind of landscape (default: 12; quick: 1)")
    parser.add_argument("--first-seed", type=int, default=0, help="choices were made on seeds below 1,000")
    parser.add_argument(
        "--runs", type=int, nargs="+", help="of a night: the marks to report at (default: 40 96; quick: 12)"
    )
    parser.add_argument("--judge", choices=JUDGES, default="greedy", help="default: %(default)s")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--kinds", nargs="+", choices=GAINS, default=list(GAINS))
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[1],
        help="of a night, which runs as many attempts at once (default: 1)",
    )
    parser.add_argument("--processes", type=int, default=2, help="nights simulated at the same time (default: 2)")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.nights = (1 if args.quick else 12) if args.nights is None else args.nights
    args.runs = sorted(set(args.runs or ([12] if args.quick else [40, 96])))
    args.workers = sorted(set(args.workers))
    if args.nights < 1 or args.runs[0] < 2 or args.workers[0] < 1 or args.processes < 1:
        parser.error("--nights, --workers and --processes must be above zero, --runs above one")
    if args.workers[-1] > 1 and not ONE_BY_ONE.isdisjoint(args.arms):
        parser.error(f"{' and '.join(sorted(ONE_BY_ONE))} know nothing of runs in flight; name other --arms")
    args.seeds = range(args.first_seed, args.first_seed + args.nights)
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("landscapes", lambda: measure.reported(args, compare, print_results))


if __name__ == "__main__":
    sys.exit(main())
