"""How proposers of dials do in simulated nights, where the truth is known: what the search's design was decided by.

    python benchmarks/landscapes.py [--nights 12] [--arms search random …] [--kinds bowl …] [--quick] [--json FILE]

A landscape is a bowl over the project's own dials, of which four to six matter; two pairs of them act together, and
beyond a cliff a run crashes. Everything is in sigma, the noise of one run; a night has 40 runs, each proposer the same
landscapes and noise, and what scores below the incumbent is kept (greedy). Gains are the champion's true ones.

    bowl     8 sigma to be had        loud    4        quiet    30        tuned    3, and close by
    short    30, most of it in BATCH_ROWS, DEPTH and ASPECT_RATIO         cliffs   10, and six cliffs

    search   agent/proposers/search/search.py           random   one to three dials from their whole ranges
    steps    one to three dials, a small step    tpe      Optuna's TPE over all dials at once (multivariate)
    cma      CMA-ES over all dials at once (separable, from the start's dials, sigma an eighth of a range)

Flat keys of --json, for each arm: ARM_share, the mean over the kinds of the share of what was to be had; ARM_crashes a
night; ARM_KIND_gain, ARM_KIND_stderr.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cmaes
import measure
import numpy as np
import optuna

from agent.experiment import (
    Attempt,
    Briefing,
    Decision,
    Ending,
    Kind,
    Night,
    Noise,
    Proposal,
    Run,
    Score,
    Status,
    incumbent,
)
from agent.judging.judge import Greedy
from agent.proposers.search.search import Search
from agent.script.dials import Choices, Dial, Range, Value, read_dials, searched, set_dials

KIND = "cpu"
SOURCE = measure.SCRIPT.read_text()
SCRIPT = SOURCE[SOURCE.index("# Shape of the model") : SOURCE.index("# Machinery")]  # its dials with ranges
DIALS = searched(SCRIPT, KIND)
NAMES = [dial.name for dial in DIALS]
GAINS = {"bowl": 8.0, "loud": 4.0, "quiet": 30.0, "tuned": 3.0, "short": 30.0, "cliffs": 10.0}  # sigma to be had
LARGE = 100.0  # attempt 0's score, in sigma
NIGHT = Night("simulated", "", "train_mlx.py", "", 300.0, 0, KIND, "", "", "", "")
Place = np.ndarray  # (D,), 0 to 1 on every dial
Propose = Callable[[Briefing], Proposal]

optuna.logging.set_verbosity(optuna.logging.ERROR)


# ---- dials and places ------------------------------------------------------------------------------------------------


def coordinate(dial: Dial, value: Value) -> float:
    if isinstance(dial.span, Choices):
        return dial.span.values.index(value) / (len(dial.span.values) - 1) if value in dial.span.values else 0.5
    assert isinstance(dial.span, Range)
    assert isinstance(value, int | float)
    low, high = dial.span.low, dial.span.high
    return math.log(value / low) / math.log(high / low) if dial.span.log else (value - low) / (high - low)


@lru_cache(100_000)
def place_of(script: str) -> Place:
    values = {dial.name: dial.value for dial in read_dials(script, KIND)}
    return np.array([coordinate(dial, values[dial.name]) for dial in DIALS])


def script_at(place: Place, parent: str) -> str:
    """The parent's script with its dials at a place; choices at the nearest one."""
    changed = {}
    for dial, to, at in zip(DIALS, np.clip(place, 0, 1), place_of(parent), strict=True):
        if isinstance(dial.span, Choices):
            last = len(dial.span.values) - 1
            if round(to * last) != round(at * last):
                changed[dial.name] = dial.span.values[round(to * last)]
        elif isinstance(dial.span, Range) and abs(to - at) > 0.01:
            low, high = dial.span.low, dial.span.high
            changed[dial.name] = float(low * (high / low) ** to if dial.span.log else low + to * (high - low))
    return set_dials(parent, KIND, changed)


START = place_of(SCRIPT)
START.setflags(write=False)


# ---- the truth -------------------------------------------------------------------------------------------------------


class Landscape:
    """Drawn from its kind and seed alone."""

    def __init__(self, kind: str, seed: int) -> None:
        rng = random.Random(f"{kind} {seed}")
        active = set(rng.sample(range(len(DIALS)), rng.choice([4, 5, 6])))
        if kind == "short":
            active |= {NAMES.index(name) for name in ("BATCH_ROWS", "DEPTH", "ASPECT_RATIO")}
        self.best, self.weight = START.copy(), np.zeros(len(DIALS))
        for i, at in enumerate(START):
            rises = (at < 0.5) == (rng.random() < 0.65)  # more often towards the middle
            room = 1 - at if rises else at
            rises, room = (rises, room) if room >= 0.15 else (not rises, 1 - room)
            far = min(room, rng.uniform(0.15, 0.5) * (0.4 if kind == "tuned" else 1.0))
            if i in active:
                self.best[i] = at + far if rises else at - far
                self.weight[i] = math.exp(rng.gauss(0, 0.8)) / far**2
            else:
                self.best[i] = at + rng.uniform(-0.08, 0.08)
        self.weight *= GAINS[kind] / (self.weight * (START - self.best) ** 2).sum()
        for i in set(range(len(DIALS))) - active:
            self.weight[i] = rng.choice([0, 0, 2, 6, 6]) * (2 if kind == "tuned" else 1)
        pairs = [rng.sample(sorted(active), 2) for _ in range(2)]
        strength = [rng.uniform(-0.6, 0.6) * math.sqrt(self.weight[i] * self.weight[j]) for i, j in pairs]
        self.pairs = [(i, j, how) for (i, j), how in zip(pairs, strength, strict=True)]
        floats = [i for i, dial in enumerate(DIALS) if isinstance(dial.span, Range) and START[i] < 0.8]
        self.cliffs = [
            (i, rng.uniform(max(START[i], self.best[i]) + 0.08, 1.1))
            for i in rng.sample(floats, 6 if kind == "cliffs" else 2)
        ]

    def loss(self, place: Place) -> float:
        off = place - self.best
        return float((self.weight * off**2).sum() + sum(how * off[i] * off[j] for i, j, how in self.pairs))

    def crashes(self, place: Place) -> bool:
        too_large = place[NAMES.index("BATCH_ROWS")] + place[NAMES.index("DEPTH")] > 1.35
        return bool(too_large or any(place[i] > edge for i, edge in self.cliffs))


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
    worst = max(attempt.val_bpb for attempt in briefing.history if attempt.val_bpb is not None) + 1
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
    "search": lambda seed: Search(KIND, seed).propose,
    "random": turning(None),
    "steps": turning(0.25),
    "tpe": tpe,
    "cma": cma,
}


# ---- nights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    gain: float  # sigma, the champion's true one
    crashes: int


def live_through(propose: Propose, kind: str, seed: int, runs: int) -> Outcome:
    land, noise, judge = Landscape(kind, seed), random.Random(f"noise {kind} {seed}"), Greedy()
    history: list[Attempt] = []
    for number in range(runs):
        best = incumbent(history)
        if best is None:
            proposal = Proposal(SCRIPT, "", "", "you")
        else:
            proposal = propose(Briefing(NIGHT, history, best, noise=Noise(1.0, 5, 2.8)))
        place = place_of(proposal.script)
        score = None if land.crashes(place) else Score(LARGE + land.loss(place) + noise.gauss(0, 1), 1.0)
        run = Run(0, Ending.FINISHED if score else Ending.CRASHED, 0 if score else 1, 1.0, None, "", score)
        attempt = Attempt(number, best.number if best else None, proposal, "", None, (run,))
        decision = judge.judge(attempt, history) if score else Decision(Kind.CRASHED, "a cliff")
        history.append(Attempt(number, attempt.parent, proposal, "", None, (run,), decision, True))
    champion = incumbent(history)
    assert champion is not None
    gain = land.loss(START) - land.loss(place_of(champion.proposal.script))
    return Outcome(gain, sum(attempt.status is Status.CRASH for attempt in history))


def flatten(found: dict[str, dict[str, list[Outcome]]]) -> measure.Flat:
    flat: measure.Flat = {}
    for arm, kinds in found.items():
        means = {kind: statistics.fmean(one.gain for one in nights) for kind, nights in kinds.items()}
        flat[f"{arm}_share"] = statistics.fmean(mean / GAINS[kind] for kind, mean in means.items())
        flat[f"{arm}_crashes"] = statistics.fmean(one.crashes for nights in kinds.values() for one in nights)
        for kind, nights in kinds.items():
            spread = statistics.stdev(one.gain for one in nights) / len(nights) ** 0.5 if len(nights) > 1 else None
            flat[f"{arm}_{kind}_gain"], flat[f"{arm}_{kind}_stderr"] = means[kind], spread
    return flat


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    rows = []
    for arm in args.arms:
        spreads = {kind: flat[f"{arm}_{kind}_stderr"] for kind in args.kinds}
        gains = [
            measure.show(flat[f"{arm}_{kind}_gain"], ".1f") + ("" if spread is None else f" ± {spread:.1f}")
            for kind, spread in spreads.items()
        ]
        rows.append(
            [arm, *gains, measure.show(flat[f"{arm}_share"], ".0%"), measure.show(flat[f"{arm}_crashes"], ".1f")]
        )
    title = f"True gain in sigma, {args.nights} nights of {args.runs} runs on each kind of landscape (± standard error)"
    measure.print_table(title, ("", *args.kinds, "of what was to be had", "crashes"), rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, help="on each kind of landscape (default: 12; quick: 1)")
    parser.add_argument("--runs", type=int, default=40, help="of a night (default: %(default)s)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--kinds", nargs="+", choices=GAINS, default=list(GAINS))
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.nights = args.nights or (1 if args.quick else 12)
    if args.nights < 1 or args.runs < 2:
        parser.error("--nights must be above zero, --runs above one")
    return args


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    found: dict[str, dict[str, list[Outcome]]] = {arm: {} for arm in args.arms}
    for arm in args.arms:
        for kind in args.kinds:
            measure.say(f"{arm}: {kind}")
            found[arm][kind] = [live_through(ARMS[arm](seed), kind, seed, args.runs) for seed in range(args.nights)]
    flat = flatten(found)
    print_results(args, flat)
    measure.write_json(args.json, flat)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("landscapes", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
