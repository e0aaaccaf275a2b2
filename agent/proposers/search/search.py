"""Search over the script's dials, from the scores alone; needs no key.

A night has tens of experiments, a script tens of dials, and the noise of a seed is as large as most gains. So every
proposal turns one to three dials of the incumbent's script, and all that was measured decides which: places near the
incumbent are drawn, and the one with the largest expected improvement under a model of the scores so far is proposed
(surrogate.py), less what is likely to crash and what cannot fit in memory.

A proposal is a function of the history and the seed alone: nothing is kept between calls, so a resumed night proposes
what an undisturbed one would have. What else was tried and did not pay is in benchmarks/README.md.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.errors import Exhausted, ScriptError
from agent.experiment import Attempt, Briefing, Ending, History, Proposal, Status, incumbent
from agent.judging.failures import too_slow
from agent.proposers.search.memory import Memory
from agent.proposers.search.space import Axis, Coordinates, draw_near, turned
from agent.proposers.search.surrogate import Scores, Surrogate, crash_risk, expected_improvement
from agent.script.cached import remembered
from agent.script.dials import (
    Dial,
    Value,
    fingerprint_of,
    legible_dials,
    normalised,
    searched,
    set_dials,
    show,
    skeleton_of,
    values_of,
)

DRAWN = 400  # places near the incumbent, of which the best is proposed
MOST_EARLIER, MOST_READ = 300, 500  # attempts of earlier nights and of this one that are read, the latest
MOST = 300  # attempts that the model looks at: its memory grows with their square, its time with their cube
MILD = 3.0  # typical differences: worse than bad is no further news


class Search:
    """Propose turns of the script's dials, by all scores so far.

    earlier: nights of the same protocol, whose scores count as well; memory_limit_gb: the most that a run may fill.
    Raise ScriptError if the script has no dial to turn, Exhausted if all places were tried.
    """

    def __init__(
        self,
        device_kind: str,
        seed: int | str,
        *,
        earlier: Sequence[History] = (),
        memory_limit_gb: float | None = None,
    ) -> None:
        self._device_kind = device_kind
        self._seed = seed
        self._earlier = _latest(earlier, MOST_EARLIER)
        self._memory_limit_gb = memory_limit_gb

    def propose(self, briefing: Briefing) -> Proposal:
        script = briefing.parent.proposal.script
        axes = [Axis.of(dial) for dial in searched(script, self._device_kind, legible_dials)]
        here = np.array([axis.place(axis.dial.value) for axis in axes], np.float64)
        nights = [*self._earlier, briefing.history]
        evidence = [one for night, history in enumerate(nights) for one in self._read(axes, history, night)]
        group = f"{len(nights) - 1} {skeleton(script, self._device_kind)}"
        evidence = most_telling(evidence, group, briefing.parent)
        rng = random.Random(f"{self._seed} {len(briefing.history)} {len(briefing.refused)}")
        there = np.array(draw_near(axes, here, DRAWN, rng))
        mean, spread, worth = _promise(briefing, axes, here, there, evidence)
        memory = Memory.learnt(self._memory(briefing.history), self._memory_limit_gb)
        seen = [attempt.proposal for attempt in briefing.history] + [refusal.proposal for refusal in briefing.refused]
        tried = {fingerprint_of(proposal.packed) for proposal in seen}
        for best in np.argsort(-worth, kind="stable"):
            changed = turned(axes, here, there[best])
            if not changed or not memory.fits({axis.dial.name: axis.dial.value for axis in axes} | changed):
                continue
            candidate = set_dials(script, self._device_kind, changed)
            if normalised(candidate) not in tried:
                expected = (float(mean[best]), float(spread[best]))
                return _proposal(candidate, changed, [axis.dial for axis in axes], len(evidence), expected)
        raise Exhausted(f"search finds no untried setting of {len(axes)} dials; add dials or widen their ranges")

    def _read(self, axes: Sequence[Axis], history: History, night: int) -> list["Evidence"]:
        """Return these attempts as places; leave out those whose script does not have these dials."""
        best = incumbent(history)
        distant = [best] if best is not None and best.number < len(history) - MOST_READ else []
        found = []
        for attempt in (*distant, *history[-MOST_READ:]):
            values = dials_of(attempt.proposal.packed, self._device_kind)
            if any(axis.dial.name in values for axis in axes):
                # a dial that is not there says nothing: it counts as where it is now
                place = np.array([axis.place(values.get(axis.dial.name, axis.dial.value)) for axis in axes], np.float64)
                if np.isfinite(place).all():
                    group = f"{night} {skeleton(attempt.proposal.packed, self._device_kind)}"
                    found.append(Evidence(place, attempt, _score_of(attempt, history), group))
        return found

    def _memory(self, history: History) -> list[tuple[Mapping[str, Value], float]]:
        """Return dials and peak memory in GB of attempt 0 and the latest others, as the harness measured it."""
        others = [attempt for past in (*self._earlier, history[1:]) for attempt in past][-MOST:]
        return [
            (values, attempt.peak_bytes / 1e9)
            for attempt in (*history[:1], *others)
            if attempt.peak_bytes is not None and (values := dials_of(attempt.proposal.packed, self._device_kind))
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Hold an attempt as a place among the dials; scores are compared only within a group."""

    place: Coordinates
    attempt: Attempt
    bpb: float | None  # its score; the forecast of a run that was ended early; None where there is neither
    group: str

    @property
    def crashed(self) -> bool:
        """Return whether it crashed or overran: both happen beyond some edge among the dials."""
        return self.attempt.status is Status.CRASH or too_slow(self.attempt) is not None


def _latest(nights: Sequence[History], most: int) -> tuple[History, ...]:
    """Return the latest nights, whole, with at most this many attempts."""
    taken: list[History] = []
    for night in reversed(nights):
        if sum(map(len, taken)) + len(night) > most:
            break
        taken.insert(0, night)
    return tuple(taken)


def _score_of(attempt: Attempt, history: History) -> float | None:
    """Return the score, or the forecast of a run that was stopped early: without it, its place would look unknown."""
    if attempt.val_bpb is not None or attempt.decision is None or attempt.decision.gain_bpb is None:
        return attempt.val_bpb
    parent = history[attempt.parent].val_bpb if attempt.parent is not None else None
    if parent is None or not any(run.ending is Ending.HOPELESS for run in attempt.done_runs):
        return None
    return parent - attempt.decision.gain_bpb


def most_telling(evidence: Sequence[Evidence], group: str, best: Attempt) -> list[Evidence]:
    """Choose MOST places in their order: the incumbent first, then its own group, then the latest."""
    first = sorted(
        range(len(evidence)), key=lambda i: (evidence[i].attempt is not best, evidence[i].group != group, -i)
    )
    return [evidence[i] for i in sorted(first[:MOST])]


skeleton = remembered(skeleton_of)


@remembered
def dials_of(script: str, device_kind: str) -> Mapping[str, Value]:
    """Return dial → value; empty if the script cannot be read."""
    try:
        return values_of(script, device_kind)
    except (ScriptError, SyntaxError):
        return {}


def _promise(
    briefing: Briefing, axes: Sequence[Axis], here: Coordinates, there: Coordinates, evidence: Sequence[Evidence]
) -> tuple[Coordinates, Coordinates, Coordinates]:
    """Return, for places (M, D), expected gain, its standard deviation in bpb, and the value of a try: (M,) each."""
    ordered = np.array([axis.ordered for axis in axes])
    fine = [one for one in evidence if one.bpb is not None and not one.crashed]
    running = {one.group for one in fine}  # a script that never ran crashed for other reasons than its dials
    crashed = [one.place for one in evidence if one.crashed and one.group in running]
    scores = _scores(fine, ordered, briefing.noise.sigma_bpb if briefing.noise else None)
    surrogate = Surrogate.of(scores, briefing.noise.sigma_bpb if briefing.noise else None)
    mean, spread = surrogate.gains(here, there)
    risk = crash_risk(np.array(crashed), scores.places, there, ordered)
    return mean, spread, expected_improvement(mean, spread) * (1 - risk)


def _scores(fine: Sequence[Evidence], ordered: np.ndarray, sigma_bpb: float | None) -> Scores:
    names = {group: i for i, group in enumerate(dict.fromkeys(one.group for one in fine))}
    groups = np.array([names[one.group] for one in fine])
    bpb = np.array([one.bpb for one in fine], np.float64)
    for group in names.values():
        bpb[groups == group] = _tempered(bpb[groups == group], sigma_bpb)
    runs = np.array([max(1, len(one.attempt.scores_bpb)) for one in fine], np.float64)
    return Scores(np.array([one.place for one in fine]), bpb, runs, groups, ordered)


def _tempered(bpb: np.ndarray, sigma_bpb: float | None) -> np.ndarray:
    """Cap the worst scores: a learning rate that ruins a run must not set the scale for all."""
    first = bpb[0]
    mild = MILD * max(float(np.median(np.abs(bpb - first))), sigma_bpb or 0.0)
    return np.minimum(bpb, first + mild) if mild else bpb


def _proposal(
    script: str, changed: Mapping[str, Value], dials: Sequence[Dial], attempts: int, expected: tuple[float, float]
) -> Proposal:
    before = {dial.name: dial.value for dial in dials}
    turns = [f"{name} {show(before[name])} → {show(value)}" for name, value in changed.items()]
    what = " and ".join(f"{name} = {show(value)}" for name, value in changed.items())
    if attempts > 1:
        falls = f"val_bpb falls by {expected[0]:.4f} ± {expected[1]:.4f}"
        why = f"by what {attempts} attempts say about {len(dials)} dials, {falls}"
    else:
        why = f"nothing is known yet about {len(dials)} dials"
    hypothesis = f"{what}: {why}. Of {DRAWN} places near the incumbent, none promises a larger expected improvement."
    return Proposal.of(script, ", ".join(turns), hypothesis, source="search")
