"""How proposers of dials do in simulated nights, where the truth is known: what the search's design was decided by.

    python benchmarks/landscapes.py [--nights 24] [--runs 40 96] [--judge balanced] [--arms search random tpe cma]
                                    [--processes N] [--quick] [--json FILE]

A landscape is a bowl over the project's own dials, of which four to six matter, or every interval where it is sharp;
two pairs of them act together, and beyond a cliff a run crashes. Everything is in sigma, the noise of one run, of
which a seed does most to all scripts alike; each proposer has the same landscapes and noise. The project's own judges
decide; runs that repeat an attempt count as runs. Gains are the champion's true ones.

    bowl     8 sigma to be had        loud    4        quiet    30        tuned    3, and close by
    short    30, most of it in BATCH_ROWS, DEPTH and ASPECT_RATIO         cliffs   10, and six cliffs
    sharp    2, a little by each dial, and close by: an edit of eight dials costs what it did in real nights on GPUs

    search   agent/proposers/search/                    random   one to three dials from their whole ranges
    tpe      Optuna's TPE over all dials at once (multivariate)
    cma      Optuna's CMA-ES over all dials at once (separable, from the start's dials, sigma an eighth of a range)

Flat keys of --json, for each arm and number of runs: ARM_RUNS_share, the mean over the kinds of the share of what was
to be had (but for sharp: too little of it can be found); ARM_RUNS_share_stderr, its standard error; ARM_RUNS_crashes of
a night; ARM_KIND_RUNS_gain, in sigma.
"""

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any, Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nights are simulated side by side

import measure
import numpy as np
from measure import CORES, Count
from simulator import Night

from agent import experiment
from agent.experiment import Attempt, Ending, History, Noise, Proposal, Run, Score, Status, incumbent
from agent.judging.judges import choose_judge
from agent.judging.noise import noise as noise_of
from agent.proposers.search import Search
from agent.proposers.source import Briefing
from agent.script.dials import Choices, Dial, Range, Value, read_dials, searched, set_dials

KIND = "cpu"
SOURCE = measure.SCRIPT.read_text(encoding="utf-8")
SCRIPT = SOURCE[SOURCE.index("# Shape of the model") : SOURCE.index("# Machinery")]  # its dials with ranges
DIALS = searched(SCRIPT, KIND)
NAMES = [dial.name for dial in DIALS]
GAINS = {"bowl": 8.0, "loud": 4.0, "quiet": 30.0, "tuned": 3.0, "short": 30.0, "cliffs": 10.0, "sharp": 2.0}  # in sigma
NEARER = {"tuned": 0.4, "sharp": 0.3}  # how far the best is, as a part of what it is elsewhere
SIGMA_BPB, BEST_BPB = 0.005, 1.0
SHARED = 0.8  # of the noise's variance: what a seed does to all scripts; 0.78 in shipped nights where dials were turned
FIRST_SEED = 1000  # choices were made on seeds below it
NIGHT = experiment.Night("simulated", "", "train_mlx.py", "", 300.0, 0, KIND, "", "", "", "")
Place = np.ndarray  # (D,), 0 to 1 on every dial
Propose = Callable[[Briefing], Proposal]


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
    """Return the parent's script with its dials at a place; choices at the nearest one."""
    changed: dict[str, Value] = {}
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
    """Say what places are worth, drawn from kind and seed alone."""

    def __init__(self, kind: str, seed: int) -> None:
        rng = random.Random(f"{kind} {seed}")
        active = set(rng.sample(range(len(DIALS)), rng.choice([4, 5, 6])))
        if kind == "short":
            active |= {NAMES.index(name) for name in ("BATCH_ROWS", "DEPTH", "ASPECT_RATIO")}
        if kind == "sharp":
            active = {i for i, dial in enumerate(DIALS) if isinstance(dial.span, Range)}
        self.best, self.weight = START.copy(), np.zeros(len(DIALS))
        for i, at in enumerate(START):
            rises = (at < 0.5) == (rng.random() < 0.65)  # more often towards the middle
            room = 1 - at if rises else at
            rises, room = (rises, room) if room >= 0.15 else (not rises, 1 - room)
            far = min(room, rng.uniform(0.15, 0.5) * NEARER.get(kind, 1.0))
            if i in active:
                self.best[i] = at + far if rises else at - far
                self.weight[i] = math.exp(rng.gauss(0, 0.8)) / (1.0 if kind == "sharp" else far**2)
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


class Scripts:
    """Hold a world of scripts in a landscape, and one proposer of their dials."""

    def __init__(self, kind: str, seed: int, source: Propose, sigma: Callable[[History], Noise | None]) -> None:
        self.land, self.seed, self._source, self._sigma = Landscape(kind, seed), seed, source, sigma
        self._noise, self._kind = random.Random(f"noise {kind} {seed}"), kind

    def propose(self, history: History, parent: Attempt | None) -> Proposal:
        if parent is None:
            return Proposal.of(SCRIPT, "", "", "you")
        return self._source(Briefing(NIGHT, tuple(history), parent, noise=self._sigma(history)))

    def merge(self, overtaken: Attempt, onto: Attempt, history: History) -> None:
        """Merge nothing: with one worker no edit is overtaken."""

    def run(self, attempt: Attempt, history: History) -> Attempt:
        place, number = place_of(attempt.proposal.script), len(attempt.runs)
        of_seed = random.Random(f"seed {self._kind} {self.seed} {number}").gauss(0, 1)
        error = SHARED**0.5 * of_seed + (1 - SHARED) ** 0.5 * self._noise.gauss(0, 1)
        val_bpb = BEST_BPB + SIGMA_BPB * (self.land.loss(place) + error)
        score = None if self.land.crashes(place) else Score(val_bpb, 1.0)
        ending, code = (Ending.FINISHED, 0) if score else (Ending.CRASHED, 1)
        return replace(attempt, runs=(*attempt.runs, Run(number, ending, code, 1.0, None, "", score)))

    def outcome(self, history: History) -> dict[str, float]:
        """Return how a night stands: the champion's true gain in sigma, and how many attempts crashed."""
        champion, start = incumbent(history), self.land.loss(START)
        return {
            "gain": start - self.land.loss(place_of(champion.proposal.script)) if champion else 0.0,
            "crashes": sum(attempt.status is Status.CRASH for attempt in history),
        }


# ---- who proposes ----------------------------------------------------------------------------------------------------


def turned_at_random(seed: int) -> Propose:
    """Turn one to three dials, anywhere in their ranges."""

    def propose(briefing: Briefing) -> Proposal:
        rng, parent = random.Random(f"{seed} {len(briefing.history)}"), briefing.parent.proposal.script
        while True:
            place = place_of(parent).copy()
            for i in rng.sample(range(len(DIALS)), rng.randint(1, 3)):
                place[i] = rng.random()
            if (script := script_at(place, parent)) != parent:
                return Proposal.of(script, "")

    return propose


def by_optuna(sampler: str, **options: object) -> Callable[[int], Propose]:
    """Ask one study of Optuna, which is told each score as it comes; a crash counts as a sigma worse than the worst."""

    def make(seed: int) -> Propose:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        axes: dict[str, Any] = {name: optuna.distributions.FloatDistribution(0, 1) for name in NAMES}
        study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=seed, **options))
        trials: list[Any] = []  # the one that the next score is of

        def propose(briefing: Briefing) -> Proposal:
            scores = [attempt.val_bpb for attempt in briefing.history]
            worst = max(score for score in scores if score is not None) + SIGMA_BPB
            if trials:
                study.tell(trials.pop(), worst if scores[-1] is None else scores[-1])
            else:
                start = dict(zip(NAMES, START.clip(0, 1).tolist(), strict=True))
                study.add_trial(optuna.trial.create_trial(params=start, distributions=axes, value=scores[0]))
            trials.append(study.ask(axes))
            place = np.array([trials[0].params[name] for name in NAMES])
            return Proposal.of(script_at(place, briefing.parent.proposal.script), "")

        return propose

    return make


FROM_START = {"x0": dict(zip(NAMES, START.tolist(), strict=True)), "sigma0": 0.125}
ARMS: dict[str, Callable[[int], Propose]] = {
    "search": lambda seed: lambda briefing: Search(seed).ideas(briefing)[0],
    "random": turned_at_random,
    "tpe": by_optuna("TPESampler", multivariate=True, n_startup_trials=8),
    "cma": by_optuna("CmaEsSampler", **FROM_START, popsize=8, use_separable_cma=True),
}


# ---- many nights -----------------------------------------------------------------------------------------------------


def outcomes(arm: str, kind: str, seed: int, judge: str, marks: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return number of runs → what a night has come to then.

    The greedy judge repeats no run that would tell sigma, so its proposer is told.
    """
    usual = Noise(SIGMA_BPB, 5, 2.8 * SIGMA_BPB)
    world = Scripts(kind, seed, ARMS[arm](seed), (lambda history: usual) if judge == "greedy" else noise_of)
    noted: dict[int, dict[str, float]] = {}

    def look(night: Night) -> None:
        if night.ended in marks:
            noted[night.ended] = world.outcome(night.history)

    Night(world, choose_judge(judge), max(marks)).simulate(look)
    return noted


def summed_up(arm: str, runs: int, nights: Mapping[str, Sequence[Mapping[str, float]]]) -> measure.Flat:
    """Return the figures of one arm after so many runs, by the outcomes of its nights on each kind."""
    gains = {kind: [night["gain"] for night in each] for kind, each in nights.items()}
    crashes = [fmean(night["crashes"] for night in each) for each in nights.values()]
    shares = [[gain / GAINS[kind] for gain in each] for kind, each in gains.items() if kind != "sharp"]
    errors = [stdev(each) / len(each) ** 0.5 for each in shares if len(each) > 1]
    return {
        f"{arm}_{runs}_share": fmean(map(fmean, shares)),
        f"{arm}_{runs}_share_stderr": math.hypot(*errors) / len(errors) if errors else None,
        f"{arm}_{runs}_crashes": fmean(crashes),
        **{f"{arm}_{kind}_{runs}_gain": fmean(each) for kind, each in gains.items()},
    }


@measure.program(nights=1, runs=[12], arms=list(ARMS))
def main(
    *,
    nights: Count = 24,
    runs: Sequence[Count] = (40, 96),
    judge: Literal["greedy", "strict", "balanced"] = "balanced",
    arms: Sequence[Literal["search", "random", "tpe", "cma"]] = ("search",),
    processes: Count = CORES,
) -> measure.Flat:
    """Play the nights of every arm on every kind of landscape.

    Args:
        nights: on each kind of landscape
        runs: of a night: the marks to report at
        judge: of the nights
        arms: who proposes
        processes: nights at the same time
    """
    flat: measure.Flat = {}
    for arm in arms:
        measure.say(f"{arm}: nights of each kind: {nights}")
        jobs = [(arm, kind, FIRST_SEED + number, judge, runs) for kind in GAINS for number in range(nights)]
        ends = measure.in_parallel(processes, outcomes, jobs)
        for mark in runs:
            by_kind = {
                kind: [end[mark] for job, end in zip(jobs, ends, strict=True) if job[1] == kind] for kind in GAINS
            }
            flat |= summed_up(arm, mark, by_kind)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
