"""How proposers of dials do in simulated nights, where the truth is known: what the search's design was decided by.

    python benchmarks/landscapes.py [--nights 24] [--runs 40 96] [--judge balanced] [--arms search again random tpe cma]
                                    [--processes N] [--quick] [--json FILE]

A landscape is a bowl over the project's own dials, of which four to six matter, or every interval where it is sharp;
two pairs of them act together, and beyond a cliff a run crashes. Two landscapes were measured. Everything is in sigma,
the noise of one run, of which a seed does most to all scripts alike; each proposer has the same landscapes and noise.
The project's own judges decide; runs that repeat an attempt count as runs. Gains are the best script's true ones.

    bowl     8 sigma to be had        loud    4        quiet    30        tuned    3, and close by
    short    30, most of it in BATCH_ROWS, DEPTH and ASPECT_RATIO         cliffs   10, and six cliffs
    sharp    2, a little by each dial, and close by: an edit of eight dials costs what it did in real nights on GPUs
    books    what dial_runs.tsv says of the dials on English prose        linux    the same on the source of Linux

    search   agent/proposers/search/                    random   one to three dials from their whole ranges
    again    search after an earlier night that turned each dial alone on the other text: on books and linux only
    tpe      Optuna's TPE over all dials at once (multivariate)
    cma      Optuna's CMA-ES over all dials at once (separable, from the start's dials, sigma an eighth of a range)

Flat keys of --json, for each arm and number of runs: ARM_RUNS_share, the mean over the kinds of the share of what was
to be had; ARM_RUNS_share_stderr, its standard error; ARM_RUNS_crashes of a night; ARM_KIND_RUNS_gain, in sigma, and
ARM_KIND_RUNS_share of what was to be had; ARM_KIND_RUNS_worse, the share of proposals that are truly worse than their
parent by more than sigma.
"""

import ast
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal, Protocol

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nights are simulated side by side

import measure
import numpy as np
from dial_runs import read_rows
from measure import CORES, Count
from simulator import Night

from agent import experiment
from agent.experiment import Attempt, Ending, History, Noise, Proposal, Run, Score, Status, best_of
from agent.judging.judges import choose_judge
from agent.judging.noise import noise as noise_of
from agent.lab.hardware import DeviceKind
from agent.proposers.proposer import Briefing
from agent.proposers.search import Search
from agent.records.record import Record
from agent.script.dials import Choices, Dial, Range, Value, outline_of, read_dials, searched, set_dials

KIND: DeviceKind = "cpu"
GPU = "cuda"
TEXT = measure.SCRIPT.read_text(encoding="utf-8")
WITH_DIALS = TEXT[TEXT.index("# Shape of the model") : TEXT.index("# Machinery")]
SCRIPT = set_dials(WITH_DIALS, KIND, {"DEPTH": 4})  # within its range, so that it can turn both ways
DIALS = searched(SCRIPT, KIND)
NAMES = [dial.name for dial in DIALS]
CHOICES = {dial.name for dial in DIALS if isinstance(dial.span, Choices)}
GAINS = {"bowl": 8.0, "loud": 4.0, "quiet": 30.0, "tuned": 3.0, "short": 30.0, "cliffs": 10.0, "sharp": 2.0}  # in sigma
TEXTS = {"books": "prose-620MB", "linux": "linux-6.1"}  # landscapes that were measured
TABLE = Path(__file__).with_name("dial_runs.tsv")
BY_SPEED_BPB = 0.01  # a pair of turns may differ from the sum of both by as much because machines' speeds differ
KINDS = (*GAINS, *TEXTS)
AGAIN = "again"
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


class Landscape(Protocol):
    """Say what places are worth, in sigma, and where a run crashes."""

    script: str  # where a night starts
    to_be_had: float  # by the best place

    def loss(self, place: Place) -> float: ...

    def crashes(self, place: Place) -> bool: ...


class Bowl:
    """A landscape that is drawn from kind and seed alone."""

    def __init__(self, kind: str, seed: int) -> None:
        self.script, self.to_be_had = SCRIPT, GAINS[kind]
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


Turned = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class DialRun:
    """One row of dial_runs.tsv that has a score."""

    turned: Turned
    seed: str
    val_bpb: float
    log_tokens: float
    text: str
    commit: str  # runs of one text and one commit were made on one host

    @classmethod
    def of(cls, row: Mapping[str, str]) -> "DialRun":
        tokens = math.log(float(row["total_tokens_M"]))
        return cls(turned_in(row), row["seed"], float(row["val_bpb"]), tokens, row["text"], row["commit"])

    @property
    def is_of_one_cost(self) -> bool:
        """Return whether a step costs what it costs in the script as it is: at most intervals were turned."""
        return {name for name, _ in self.turned}.isdisjoint(CHOICES)

    def is_beside(self, other: "DialRun") -> bool:
        return (self.text, self.commit) == (other.text, other.commit)


def turned_in(row: Mapping[str, str]) -> Turned:
    """Read `DEPTH=6; WINDOW_PATTERN='SL'`."""
    pairs = (word.split("=", 1) for word in row["turned"].split("; ") if word)
    return tuple((name, ast.literal_eval(value)) for name, value in pairs)


@dataclass(frozen=True)
class Effects:
    """What turns bring, in bpb, and the noise of a seed."""

    bpb: Mapping[Turned, float]
    sigma_bpb: float
    seeds: int  # of the script as it is

    @classmethod
    def of(cls, runs: Sequence[DialRun]) -> "Effects":
        slopes = {text: _of_tokens(runs, text) for text in {run.text for run in runs if run.turned}}

        def level(run: DialRun, log_tokens: float) -> float:
            faster = run.log_tokens - log_tokens if run.is_of_one_cost else 0.0
            return run.val_bpb - slopes[run.text] * faster

        bpb, as_it_is = {}, [run for run in runs if not run.turned]
        for run in runs:
            if run.turned:
                own = [one for one in as_it_is if one.is_beside(run) and one.seed == run.seed]
                tokens = fmean(one.log_tokens for one in own)
                bpb[run.turned] = level(run, tokens) - fmean(level(one, tokens) for one in own)
        by_seed = {run.seed: run for run in reversed(as_it_is) if run.is_beside(runs[0])}
        return cls(bpb, stdev(level(run, runs[0].log_tokens) for run in by_seed.values()), len(by_seed))


def _of_tokens(runs: Sequence[DialRun], text: str) -> float:
    """Return what the logarithm of tokens is worth, in bpb: the median slope of all pairs (Theil 1950; Sen 1968)."""
    alike = [run for run in runs if run.is_of_one_cost and run.seed == "0" and run.text == text]
    pairs = [(one, two) for i, one in enumerate(alike) for two in alike[:i] if one.log_tokens != two.log_tokens]
    return median((one.val_bpb - two.val_bpb) / (one.log_tokens - two.log_tokens) for one, two in pairs)


@dataclass(frozen=True)
class Curve:
    """What one dial is worth, by its place: a parabola, or straight lines between the choices that were measured."""

    dial: Dial
    start: float
    places: Sequence[float]  # in order, the start among them
    bpb: Sequence[float]  # the difference to the start
    crashed: Sequence[float]  # places

    @classmethod
    def of(cls, dial: Dial, start: float, bpb: Mapping[Turned, float], crashed: Sequence[Turned]) -> "Curve":
        points = [(coordinate(dial, to[0][1]), by) for to, by in bpb.items() if len(to) == 1 and to[0][0] == dial.name]
        places, values = zip(*sorted([(start, 0.0), *points]), strict=True)
        edges = [coordinate(dial, value) for turned in crashed for name, value in turned if name == dial.name]
        return cls(dial, start, places, values, edges)

    def at(self, place: float) -> float:
        if isinstance(self.dial.span, Choices):
            places, bpb = np.array(self.places), np.array(self.bpb)
            if len(places) > 1 and not places[0] <= place <= places[-1]:  # as the two outermost go on, but no better
                i, j = (0, 1) if place < places[0] else (-1, -2)
                steps = (place - places[i]) / (places[i] - places[j])
                return float(bpb[i] + steps * max(0.0, bpb[i] - bpb[j]))
            return float(np.interp(place, places, bpb))
        slope, bend = self.parabola
        away = place - self.start
        return slope * away + bend * away**2

    @cached_property
    def parabola(self) -> tuple[float, float]:
        """Return slope and bend by least squares; its lowest place lies within what was measured."""
        away, bpb = np.array(self.places) - self.start, np.array(self.bpb)
        slope, bend = np.linalg.lstsq(np.stack([away, away**2], axis=1), bpb, rcond=None)[0]
        return float(slope), max(float(bend), abs(float(slope)) / (2 * float(np.abs(away).max())))

    def options(self) -> list[float]:
        if isinstance(self.dial.span, Choices):
            return [index / (len(self.dial.span.values) - 1) for index in range(len(self.dial.span.values))]
        return [step / 100 for step in range(101)]

    def crashes(self, place: float) -> bool:
        return any(abs(place) >= abs(edge) and (place - self.start) * (edge - self.start) > 0 for edge in self.crashed)


class Measured:
    """The landscape of the script as it is on a GPU, by the runs of dial_runs.py on one text.

    Where that text has no run, another's stands: what dials bring correlates by 0.96. A score depends on the tokens
    trained, too, and these scatter with the machine's speed. That is taken out for dials that do not change what a step
    costs. Dials add up, except where a pair was measured to differ by more than speeds explain.
    """

    def __init__(self, text: str) -> None:
        self.script = set_dials(SCRIPT, KIND, {dial.name: dial.value for dial in searched(SCRIPT, GPU)})
        self._start = place_of(self.script)
        rows = read_rows(TABLE)
        here = [row for row in rows if row["text"] == text]
        self.turned = {turned_in(row) for row in here} - {()}  # what was measured on this text itself
        rows = here + [row for row in rows if row["text"] != text and turned_in(row) not in self.turned]
        self.effects = effects = Effects.of([DialRun.of(row) for row in rows if row["val_bpb"]])
        crashed = [turned_in(row) for row in rows if not row["val_bpb"]]
        self.sigma_bpb, self.seeds = effects.sigma_bpb, effects.seeds
        self._curves = [
            Curve.of(dial, start, effects.bpb, crashed) for dial, start in zip(DIALS, self._start, strict=True)
        ]
        pairs = [self._pair(turned, bpb) for turned, bpb in effects.bpb.items() if len(turned) > 1]
        self._pairs = [pair for pair in pairs if abs(pair[2]) > BY_SPEED_BPB]
        self.to_be_had = -self.loss(self._best())

    def _pair(self, turned: Turned, bpb: float) -> tuple[list[int], list[float], float]:
        """Return two dials, how far they were turned, and how much that differs from the sum of both."""
        indices = [NAMES.index(name) for name, _ in turned]
        places = [coordinate(DIALS[i], value) for i, (_, value) in zip(indices, turned, strict=True)]
        alone = sum(self._curves[i].at(place) for i, place in zip(indices, places, strict=True))
        return indices, [place - self._start[i] for i, place in zip(indices, places, strict=True)], bpb - alone

    def _best(self) -> Place:
        best = self._start.copy()
        for _ in range(3):  # sweeps, since pairs act together
            for i, curve in enumerate(self._curves):
                tries = [np.where(np.arange(len(best)) == i, option, best) for option in curve.options()]
                best = min((place for place in tries if not self.crashes(place)), key=self.loss)
        return best

    def loss(self, place: Place) -> float:
        bpb = sum(curve.at(at) for curve, at in zip(self._curves, place.tolist(), strict=True))
        for indices, far, beside in self._pairs:
            parts = ((place[i] - self._start[i]) / way for i, way in zip(indices, far, strict=True))
            bpb += beside * math.prod(min(1.0, max(0.0, part)) for part in parts)
        return float(bpb / self.sigma_bpb)

    def crashes(self, place: Place) -> bool:
        return any(curve.crashes(at) for curve, at in zip(self._curves, place.tolist(), strict=True))


@cache
def measured(kind: str) -> Measured:
    return Measured(TEXTS[kind])


@cache
def earlier_night(kind: str) -> Record:
    """Return the runs of single dials on the other text as a night, of those turns that both texts have."""
    there, here = (measured(each) for each in (next(text for text in TEXTS if text != kind), kind))
    bpb: dict[Turned, float] = {(): 0.0, **{turned: by for turned, by in there.effects.bpb.items() if len(turned) == 1}}
    both = {(), *(there.turned & here.turned)}
    attempts: list[Attempt] = []
    for turned in (turned for turned in bpb if turned in both):
        script = set_dials(here.script, KIND, dict(turned))
        score = Score(BEST_BPB + bpb[turned], 1.0)
        runs = [Run(seed, Ending.FINISHED, 0, 1.0, None, "", score) for seed in range(1 if turned else there.seeds)]
        at, proposal, outline = len(attempts), Proposal.of(script, ""), outline_of(script, KIND)
        attempts.append(
            Attempt(at, 0 if at else None, proposal, "", "c", outline=outline, runs=tuple(runs), settled=True)
        )
    night = replace(NIGHT, tag="earlier", protocol="of another text")
    return Record(night, tuple(attempts), noise=Noise(there.sigma_bpb, there.seeds, 2.8 * there.sigma_bpb))


def landscape(kind: str, seed: int) -> Landscape:
    return measured(kind) if kind in TEXTS else Bowl(kind, seed)


class Scripts:
    """A world of scripts in a landscape, and one proposer of their dials."""

    def __init__(
        self,
        kind: str,
        seed: int,
        proposer: Propose,
        sigma: Callable[[History], Noise | None],
        past: Sequence[Record] = (),
    ) -> None:
        self.land, self.seed, self._proposer, self._sigma, self._past = (
            landscape(kind, seed),
            seed,
            proposer,
            sigma,
            past,
        )
        self._noise, self._kind = random.Random(f"noise {kind} {seed}"), kind

    def propose(self, history: History, parent: Attempt | None) -> Proposal:
        if parent is None:
            return Proposal.of(self.land.script, "", "", "you")
        return self._proposer(Briefing(NIGHT, tuple(history), parent, past=self._past, noise=self._sigma(history)))

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
        """Return how a night stands: the best script's true gain in sigma, and how many attempts crashed."""
        best, losses = best_of(history), [self.land.loss(place_of(each.proposal.script)) for each in history]
        ideas = [attempt for attempt in history if attempt.parent is not None]
        worse = [losses[idea.number] > losses[idea.parent or 0] + 1 for idea in ideas]
        gain = losses[0] - losses[best.number] if best else 0.0
        return {
            "gain": gain,
            "share": gain / self.land.to_be_had,
            "worse": fmean(worse) if worse else 0.0,
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
    **dict.fromkeys(("search", AGAIN), lambda seed: lambda briefing: Search(seed).proposals(briefing)[0]),
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
    sigma: Callable[[History], Noise | None] = (lambda history: usual) if judge == "greedy" else noise_of
    world = Scripts(kind, seed, ARMS[arm](seed), sigma, past=(earlier_night(kind),) if arm == AGAIN else ())
    noted: dict[int, dict[str, float]] = {}

    def watch(night: Night) -> None:
        if night.ended in marks:
            noted[night.ended] = world.outcome(night.history)

    Night(world, choose_judge(judge), max(marks)).simulate(watch)
    return noted


def summed_up(arm: str, runs: int, nights: Mapping[str, Sequence[Mapping[str, float]]]) -> measure.Flat:
    """Return the figures of one arm after so many runs, by the outcomes of its nights on each kind."""
    crashes = [fmean(night["crashes"] for night in each) for each in nights.values()]
    shares = [[night["share"] for night in each] for each in nights.values()]
    errors = [stdev(each) / len(each) ** 0.5 for each in shares if len(each) > 1]
    return {
        f"{arm}_{runs}_share": fmean(map(fmean, shares)),
        f"{arm}_{runs}_share_stderr": math.hypot(*errors) / len(errors) if errors else None,
        f"{arm}_{runs}_crashes": fmean(crashes),
        **{
            f"{arm}_{kind}_{runs}_{figure}": fmean(night[figure] for night in each)
            for kind, each in nights.items()
            for figure in ("gain", "share", "worse")
        },
    }


@measure.program(nights=1, runs=[12], arms=list(ARMS))
def main(
    *,
    nights: Count = 24,
    runs: Sequence[Count] = (40, 96),
    judge: Literal["greedy", "strict", "balanced"] = "balanced",
    arms: Sequence[Literal["search", "again", "random", "tpe", "cma"]] = ("search", "again"),
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
        kinds = TEXTS if arm == AGAIN else KINDS
        jobs = [(arm, kind, FIRST_SEED + number, judge, runs) for kind in kinds for number in range(nights)]
        ends = measure.in_parallel(processes, outcomes, jobs)
        for mark in runs:
            by_kind = {
                kind: [end[mark] for job, end in zip(jobs, ends, strict=True) if job[1] == kind] for kind in kinds
            }
            flat |= summed_up(arm, mark, by_kind)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
