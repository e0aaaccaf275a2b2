"""What a judge is worth: simulated nights in which the truth is known, judged by the very code that real nights use.

    python benchmarks/judge_power.py [--nights 300] [--other-nights 100] [--parallel-nights 100] [--workers 2]
                                     [--quick] [--json FILE]

A night has 96 runs, those that calibrate included. Its edits do harm, nothing or good, by amounts in units of sigma,
the noise of one run; sigma itself differs from night to night and no judge is told. Scenarios:

  usual     70 % harmful, 3 sigma on average; 18 % without effect; 12 % gains of 1.5 sigma on average; all exponential
  rarer     the share of gains falls from 24 % to nothing in the course of the night, in favour of harm
  peaked    60 % harmful, 4 sigma on average; 28 % without effect; 12 % gains of 1.5 sigma; seldom small: gamma, shape 3
  sources   each edit comes from one of two sources by chance: 40 % harmful, 35 % without effect, 25 % gains in one,
            85 %, 12 % and 3 % in the other, of the usual sizes
  dials     each edit turns eight dials: two help by 1 sigma on average, two harm by 3, four do nothing; exponential

each with Gaussian and with heavy-tailed noise (Student's t with 3 degrees of freedom, scaled to the same deviation).
Effects add up, so that a script without an edit is worth its own merit less that edit's effect. Policies:

  greedy    one run, lower than the incumbent
  gate      three runs against the incumbent's three; kept where 95 % of all bootstrap resamples say better
  strict, balanced                    nightshift's
  untold    balanced, which is not told the sources; in that scenario only
  dawn      balanced, and up to 30 runs more at dawn (agent/judging/champion.py), without the passengers
  undivided dawn, which asks about whole edits only; in the scenario of dials only

JSON, for each policy P, means over the nights: P_true_gain, P_bias (believed less true gain), both in sigma, P_keeps,
P_worthless (share of the keeps whose true effect is not above zero), P_runs_per_attempt, P_false_keeps_per_100 (edits
without effect that are kept, of 100 tried); P_true_gain_error is a standard error. These are of the usual scenario
with Gaussian noise; others begin with its name: heavy_, rarer_, rarer_heavy_, peaked_, peaked_heavy_, sources_,
sources_heavy_, dials_, dials_heavy_.

Nights with several workers are those of benchmarks/parallel_nights.py, whose keys it lists.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nights are simulated side by side

import measure
import numpy as np
from parallel_nights import compare_workers, print_workers
from simulated import MIXTURES, RUNS, World

from agent.experiment import (
    Attempt,
    Decision,
    History,
    Judge,
    Kind,
    Proposal,
    Review,
    Status,
    incumbent,
    is_half,
)
from agent.judging.champion import Ablation, Again, Without
from agent.judging.findings import Findings
from agent.judging.judges import Balanced, Greedy, Strict

DAWN_RUNS = 30
POLICIES = ("greedy", "gate", "strict", "balanced", "dawn")


def policies(mixture: str) -> tuple[str, ...]:
    told = ("untold",) * (len(MIXTURES[mixture]) > 1)
    divided = ("undivided",) * (MIXTURES[mixture][0].dials > 1)
    return *POLICIES[:-2], *told, "balanced", *divided, "dawn"


@dataclass(frozen=True)
class Gate:
    """Three runs of everything; keep where the bootstrap (Efron 1979), here all of its resamples, says better."""

    calibration: int = 3

    def judge(self, attempt: Attempt, history: History) -> Decision:
        if len(attempt.runs) < 3:
            return Decision(Kind.UNDECIDED, "three runs")
        best = incumbent(history)
        if best is None:
            return Decision(Kind.BASELINE, "baseline")
        own, other = ([sum(three) for three in itertools.product(one.scores_bpb, repeat=3)] for one in (attempt, best))
        better = float((np.subtract.outer(own, other) < 0).mean())
        return Decision(Kind.KEPT if better >= 0.95 else Kind.LUCK, f"{better:.0%} of the resamples")

    def review(self, history: History) -> Review:
        return Review()


def a_night(judge: Judge, world: World, *, told: bool = True) -> tuple[list[Attempt], list[float]]:
    """Attempts, and the seconds that the judge thought about each; told: whether it sees the edits' sources."""
    history: list[Attempt] = []
    thought_s: list[float] = []
    runs = 0
    while runs < RUNS:
        best, number = incumbent(history), len(history)
        proposal = Proposal("", "", "", f"source {world.sources[number]}" if told else "")
        attempt = Attempt(number, best.number if best else None, proposal, "", commit="c")
        began, decision = time.perf_counter(), Decision(Kind.UNDECIDED, "not measured yet")
        while decision.status is None and runs < RUNS:
            attempt, runs = world.run(attempt, [*history, attempt]), runs + 1
            decision = judge.judge(attempt, history)
        if decision.status is None:
            decision = Decision(Kind.WORSE, "the night is over")
        history.append(replace(attempt, decision=decision, settled=True))
        runs += think_again(judge, world, history, RUNS - runs)
        thought_s.append(time.perf_counter() - began)
    return history, thought_s


def think_again(judge: Judge, world: World, history: list[Attempt], runs_left: int) -> int:
    """Follow the judge's review until it asks for nothing further; return the runs that this took."""
    runs = 0
    while True:
        review = judge.review(history)
        for number, decision in review.decisions.items():
            history[number] = replace(history[number], decision=decision)
        if review.again is not None and runs < runs_left:
            history[review.again], runs = world.run(history[review.again], history), runs + 1
        elif not review.decisions:
            return runs


def a_dawn(world: World, history: list[Attempt], divisible: Collection[int] = ()) -> int:
    """Follow agent/judging/champion.py; the runs that this took."""
    runs = 0
    while (dawn := ablation(history, divisible)) and (trial := dawn.next_run(DAWN_RUNS - runs)) is not None:
        match trial:
            case Without(edits):
                proposal, parent = Proposal("", "", "", "dawn", without=edits), dawn.champion.number
                decided = Decision(Kind.QUESTION, "a question of dawn")
                history.append(Attempt(len(history), parent, proposal, "", "c", decision=decided, settled=True))
            case Again(number):
                history[number], runs = world.run(history[number], history, dawn=1), runs + 1
    return runs


def ablation(history: Sequence[Attempt], divisible: Collection[int] = ()) -> Ablation | None:
    """The dawn of the night's best script; None if that is attempt 0."""
    best = incumbent(history)
    return Ablation(history, best, divisible=divisible) if best is not None and best.number else None


def found_by(history: Sequence[Attempt], divisible: Collection[int] = ()) -> Findings | None:
    dawn = ablation(history, divisible)
    return None if dawn is None else dawn.findings()


@dataclass(frozen=True)
class Outcome:
    """How one night ended; gains in sigma."""

    true_gain: float
    bias: float
    keeps: int
    worthless: int
    runs: int
    attempts: int
    false_keeps: int
    without_effect: int


def outcome(
    world: World, history: History, kept: list[int], believed_bpb: float, halves: Sequence[int] = ()
) -> Outcome:
    """How a night ended that kept these edits, without these halves of them."""
    ideas = [attempt.number for attempt in history[1:] if attempt.is_idea]
    gain = sum(map(world.worth, kept)) - sum(map(world.worth, halves))
    return Outcome(
        true_gain=gain,
        bias=believed_bpb / world.sigma_bpb - gain,
        keeps=len(kept),
        worthless=sum(world.effects[k] <= 0 for k in kept),
        runs=sum(len(attempt.runs) for attempt in history),
        attempts=len(ideas) + 1,
        false_keeps=sum(world.effects[k] == 0 for k in kept),
        without_effect=sum(world.effects[k] == 0 for k in ideas),
    )


def outcomes(world: World, names: Sequence[str]) -> Iterator[tuple[str, Outcome, list[float]]]:
    judges: dict[str, Judge] = {"greedy": Greedy(), "gate": Gate(), "strict": Strict()}
    at_dawn = [name for name in names if name in ("undivided", "dawn")]
    for name in names[: -len(at_dawn)]:
        history, thought_s = a_night(judges.get(name, Balanced()), world, told=name != "untold")
        kept = [attempt.number for attempt in history[1:] if attempt.status is Status.KEEP]
        found = found_by(history)
        believed_bpb = 0.0 if found is None else found.recorded_bpb if name in judges else found.believed_bpb
        yield name, outcome(world, history, kept, believed_bpb), thought_s
    for name in at_dawn:
        confirmed = list(history)
        divisible = kept if name == "dawn" and world.dials.shape[1] > 1 else ()
        a_dawn(world, confirmed, divisible)
        found = found_by(confirmed, divisible)
        passengers = found.passengers if found is not None else ()
        left = [number for number in kept if number not in passengers]
        halves = [number for number in passengers if is_half(number)]
        yield name, outcome(world, confirmed, left, told_at_dawn(found), halves), []


def told_at_dawn(found: Findings | None) -> float:
    """The gain of the confirmed script: the champion's on fresh seeds, and what it is without its passengers."""
    if found is None or found.honest is None:
        return 0.0
    dropped = sum(edit.effect.mean_bpb for edit in found.edits if edit.number in found.passengers)
    return found.honest.mean_bpb - dropped


def simulate(job: tuple[int, str, bool]) -> list[tuple[str, Outcome, list[float]]]:
    seed, mixture, heavy = job
    return list(outcomes(World(seed, MIXTURES[mixture], heavy), policies(mixture)))


def scenarios(args: argparse.Namespace) -> Iterator[tuple[str, str, bool, int]]:
    """Prefix of its keys, mixture, heavy tails, nights."""
    for mixture, heavy in itertools.product(MIXTURES, (False, True)):
        prefix = "" if mixture == "usual" else f"{mixture}_"
        nights = args.other_nights if prefix or heavy else args.nights
        if nights:
            yield prefix + ("heavy_" if heavy else ""), mixture, heavy, nights


def compare(args: argparse.Namespace) -> measure.Flat:
    flat: measure.Flat = {"runs": RUNS, "dawn_runs": DAWN_RUNS, "nights": args.nights, "first_seed": args.first_seed}
    with ProcessPoolExecutor(args.workers) as pool:
        for prefix, mixture, heavy, nights in scenarios(args):
            measure.say(f"{nights} nights: {mixture}, {'heavy-tailed' if heavy else 'Gaussian'} noise")
            jobs = [(args.first_seed + i, mixture, heavy) for i in range(nights)]
            found = list(pool.map(simulate, jobs))
            for name in policies(mixture):
                these = [one for night in found for policy, one, _ in night if policy == name]
                flat |= {f"{prefix}{name}_{key}": value for key, value in summary(these).items()}
            if not prefix:
                thought_s = [s for night in found for policy, _, spent in night if policy == "balanced" for s in spent]
                flat["balanced_median_ms"], flat["balanced_slowest_ms"] = (
                    1e3 * float(np.quantile(thought_s, share)) for share in (0.5, 1.0)
                )
            flat[f"{prefix}balanced_over_greedy"] = quotient(flat, prefix, "balanced", "greedy")
            flat[f"{prefix}dawn_over_balanced"] = quotient(flat, prefix, "dawn", "balanced")
        return flat | compare_workers(args, pool)


def summary(nights: list[Outcome]) -> measure.Flat:
    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in nights]))

    gains = [one.true_gain for one in nights]
    return {
        "true_gain": mean("true_gain"),
        "true_gain_error": float(np.std(gains)) / math.sqrt(len(gains)),
        "bias": mean("bias"),
        "keeps": mean("keeps"),
        "worthless": mean("worthless") / max(mean("keeps"), 1e-9),
        "runs_per_attempt": mean("runs") / mean("attempts"),
        "false_keeps_per_100": 100 * mean("false_keeps") / max(mean("without_effect"), 1e-9),
    }


def quotient(flat: measure.Flat, prefix: str, above: str, below: str) -> float | None:
    top, bottom = flat[f"{prefix}{above}_true_gain"], flat[f"{prefix}{below}_true_gain"]
    return measure.ratio(float(top or 0), float(bottom or 0))


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    columns = ("", "true gain, σ", "believed less true", "keeps", "worthless", "runs an attempt", "false keeps in 100")
    for prefix, mixture, heavy, nights in scenarios(args):
        rows = [
            [
                name,
                f"{flat[f'{prefix}{name}_true_gain']:.2f} ± {flat[f'{prefix}{name}_true_gain_error']:.2f}",
                f"{flat[f'{prefix}{name}_bias']:+.2f}",
                f"{flat[f'{prefix}{name}_keeps']:.2f}",
                f"{flat[f'{prefix}{name}_worthless']:.1%}",
                f"{flat[f'{prefix}{name}_runs_per_attempt']:.2f}",
                f"{flat[f'{prefix}{name}_false_keeps_per_100']:.2f}",
            ]
            for name in policies(mixture)
        ]
        noise = "heavy-tailed" if heavy else "Gaussian"
        measure.print_table(f"{mixture}, {noise} noise, {nights} nights of {RUNS} runs", columns, rows)
    if args.parallel_nights:
        print_workers(flat)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, help="of the usual scenario (default: 300; quick: 4)")
    parser.add_argument("--other-nights", type=int, help="of each other scenario (default: 100; quick: 0)")
    parser.add_argument("--parallel-nights", type=int, help="with several workers (default: 100; quick: 2)")
    parser.add_argument("--first-seed", type=int, default=10_000, help="choices were made on seeds below 1,000")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.nights = (4 if args.quick else 300) if args.nights is None else args.nights
    args.other_nights = (0 if args.quick else 100) if args.other_nights is None else args.other_nights
    args.parallel_nights = (2 if args.quick else 100) if args.parallel_nights is None else args.parallel_nights
    if args.nights < 0 or min(args.other_nights, args.parallel_nights) < 0 or args.workers < 1:
        parser.error("--nights and --workers must be above zero")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("judge_power", lambda: measure.reported(args, compare, print_results))


if __name__ == "__main__":
    sys.exit(main())
