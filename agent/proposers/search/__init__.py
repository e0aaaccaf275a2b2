"""Search over the script's dials, from the scores alone; needs no key.

curves.py is its model of the scores so far, places.py reads dials and attempts for it.

A night has tens of experiments, a script tens of dials, and the noise of a seed is as large as most gains. So every
proposal turns several dials at once, up to five from the best place so far: its run tells something about each. At most
one of them is a choice: choices are mostly the model's shape, where most steps cost more than all others can bring. A
model of the scores has a curve for every dial (curves.py). Thompson sampling (Thompson 1933; Chapelle & Li 2011) draws
curves from what is known; each draw has a place that is best by it, near the best place so far. Of these, the one with
the largest expected improvement is proposed, less what is likely to crash.

A proposal is a function of the history and the seed alone: nothing is kept between calls, so a resumed night proposes
what an undisturbed one would have. What else was tried and did not pay is in benchmarks/README.md.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from agent.errors import Exhausted, ScriptError
from agent.experiment import Night, Proposal
from agent.proposers.proposer import Around, Briefing, Proposer
from agent.proposers.search.curves import Array, Curves
from agent.proposers.search.places import Axis, Coordinates, Observation, observed, turned
from agent.script.dials import Dial, Value, searched, set_dials, show
from agent.text import counted, digits

PROPOSER = "search"
NAMED = 3  # turns in a title, which is also a line of a table and the subject of a commit
RADIUS = 0.1  # a turn goes as far from the best place, as a share of the dial's range
MOST_TURNED, MOST_CHOICES = 5, 1  # dials and choices that one proposal turns at most
LEAST = 0.05  # sigma; a dial's turn has to bring this much
CRASH = 4.0  # sigma; a crash costs this much
SURE = 0.99  # risk of a crash at the place of another, where one dial alone is to blame
ANYWHERE, FEW = 400, 3  # places tried when all others are used up, and dials that they turn at most


class Search(Proposer):
    """Propose turns of the script's dials, by all scores so far; those of earlier nights count by their likeness.

    Raise ScriptError if the script has no dial to turn, Exhausted if all places were tried.
    """

    name, help = PROPOSER, "turns dials, needs no key"
    # The judge takes one edit in four for a gain before it has seen any (belief.PRIOR), and a turn of dials is no
    # better than others: near a tuned start, nine in a row on an H200 were losses.
    attempts_a_keep = 4.0

    @classmethod
    def of(cls, around: Around) -> "Search":
        return cls(f"{around.night.tag} {around.night.seed}")

    def __init__(self, seed: int | str) -> None:
        self._seed = seed

    def proposals(self, briefing: Briefing) -> list[Proposal]:
        script, kind = briefing.parent.proposal.script, briefing.night.device_kind
        axes, here = _axes(searched(script, kind, strict=False))
        observations = observed(axes, briefing)
        seed = random.Random(f"{self._seed} {briefing.number} {len(briefing.refused)}").getrandbits(64)
        rng = np.random.default_rng(seed)
        fine = [point for point in observations if point.bpb is not None and not point.crashed]
        running = {point.group for point in fine}  # where none ran, dials are not why they crashed
        crashed = [point.place for point in observations if point.crashed and point.group in running]
        curves = Curves.fitted(axes, fine, here, briefing.sigma_bpb, rng)
        for there in _places(axes, here, fine, crashed, curves, rng):
            changed = turned(axes, here, there)
            if changed:
                candidate = set_dials(script, kind, changed)
                if briefing.is_new(candidate):
                    apart = np.abs(curves.at(here, curves.mean) - curves.at(there, curves.mean))
                    order = [axes[i].dial for i in np.argsort(-apart, kind="stable")]
                    dials = [dial for dial in order if dial.name in changed]
                    told = curves.gain(here, there), len(observations), briefing.night
                    return [_proposal(candidate, dials, changed, *told)]
        raise Exhausted(f"search finds no untried setting of {len(axes)} dials; add dials or widen their ranges")


def _axes(dials: Sequence[Dial]) -> tuple[list[Axis], Coordinates]:
    """Return the axes of these dials and their present place; leave out a dial whose value has none."""
    axes = [Axis.of(dial) for dial in dials]
    places = np.array([axis.place(axis.dial.value) for axis in axes], np.float64)
    if not np.isfinite(places).any():
        raise ScriptError(f"{dials[0].name} is {show(dials[0].value)}, which is not in its range; set it to what is")
    return [axis for axis, place in zip(axes, places, strict=True) if math.isfinite(place)], places[np.isfinite(places)]


def _proposal(
    script: str,
    dials: Sequence[Dial],
    changed: Mapping[str, Value],
    gain: tuple[float, float],
    attempts: int,
    night: Night,
) -> Proposal:
    """Make the proposal; dials: those that turn, the one with the largest expected effect first."""
    turns = [f"{dial.name} {show(dial.value)} → {show(changed[dial.name])}" for dial in dials]
    title = ", ".join(turns[:NAMED]) + (f" and {len(turns) - NAMED} more" if len(turns) > NAMED else "")
    what = " and ".join(f"{dial.name} = {show(changed[dial.name])}" for dial in dials)
    decimals = None if night.options.metric else 4
    change, spread = digits(-night.sign * gain[0], decimals, "+"), digits(gain[1], decimals)
    why = f"by {counted(attempts, 'attempt')}, {night.metric} is expected to change by {change} ± {spread}"
    return Proposal.of(script, title, f"{what}: {why}.", proposer=PROPOSER)


# ---- places to try ---------------------------------------------------------------------------------------------------


def _places(
    axes: Sequence[Axis],
    here: Coordinates,
    fine: Sequence[Observation],
    crashed: Sequence[Coordinates],
    curves: Curves,
    rng: np.random.Generator,
) -> Iterator[Coordinates]:
    """Yield the best place of each sample of the curves, the most promising first, and then any."""
    ran = np.array([here, *(point.place for point in fine)])
    crashes = np.array(crashed).reshape(-1, len(axes))
    ordered = np.array([not axis.words for axis in axes])
    tonight = np.array([here, *(point.place for point in fine if point.is_tonight)])
    centre = tonight[np.argmin(curves.at(tonight, curves.mean).sum(axis=-1))]
    options = _options(axes, centre, here)
    cost = CRASH * curves.unit * edge_risk(ran, crashes, options, ordered)
    is_choice = np.array([axis.options is not None for axis in axes])
    places = np.array(
        [_best(options, centre, curves.at(options, sample) + cost, curves.unit, is_choice) for sample in curves.samples]
    )
    safe = np.prod(1 - edge_risk(ran, crashes, places, ordered), axis=-1)
    yield from places[np.argsort(-curves.improvement(centre, places) * safe, kind="stable")]
    for _ in range(ANYWHERE):
        place = here.copy()
        for i in rng.permutation(len(axes))[: rng.integers(1, FEW + 1)]:
            place[i] = rng.choice(axes[i].near(here[i], here[i], radius=1))
        yield place


def _options(axes: Sequence[Axis], centre: Coordinates, here: Coordinates) -> Array:  # (L, D)
    """Return the places of every dial that may be chosen, the present one first and where there are fewer."""
    columns = [axis.near(to, at, RADIUS) for axis, to, at in zip(axes, centre, here, strict=True)]
    most = max(map(len, columns))
    return np.array([column + column[:1] * (most - len(column)) for column in columns]).T


def _best(
    options: Array, centre: Coordinates, values: Array, unit: float, is_choice: npt.NDArray[np.bool_]
) -> Coordinates:
    """Turn those dials of the centre that bring most, by the values (L, D) of the options."""
    at, dials = values.argmin(axis=0), np.arange(len(centre))
    middle = np.abs(options - centre).argmin(axis=0)  # this is the centre itself, or the present place within a step
    gains = values[middle, dials] - values[at, dials]
    place: Coordinates = options[middle, dials].copy()
    bringing = [dial for dial in np.argsort(-gains, kind="stable") if gains[dial] > LEAST * unit]
    too_many = [dial for dial in bringing if is_choice[dial]][MOST_CHOICES:]
    for dial in [dial for dial in bringing if dial not in too_many][:MOST_TURNED]:
        place[dial] = options[at[dial], dial]
    return place


def edge_risk(ran: Array, crashed: Array, places: Array, ordered: npt.NDArray[np.bool_]) -> Array:  # (L, D)
    """Return the risk that each dial crashes a run by itself, at places (L, D), from those that ran and crashed.

    Every dial may have an edge beyond which runs crash: a learning rate that diverges, a size that does not fit. A
    crash is blamed on the dials that left what had run, in equal parts. The risk grows up to its place.
    """
    outside, crossed = _outside(ran, places, ordered), _outside(ran, crashed, ordered)
    blame = (crossed != 0) / np.maximum((crossed != 0).sum(axis=1, keepdims=True), 1)  # (C, D)
    way = np.clip(outside / np.where(crossed != 0, crossed, np.inf)[:, None], 0, 1)  # (C, L, D)
    is_same = (np.abs(places - crashed[:, None]) < 0.5) & (crossed[:, None] != 0)
    risk: Array = 1 - np.prod(1 - SURE * blame[:, None] * np.where(ordered, way, is_same), axis=0)
    return risk


def _outside(ran: Array, places: Array, ordered: npt.NDArray[np.bool_]) -> Array:
    """Return how far places (N, D) are above what ran, or below it as a negative number; of words, 1 for a new one."""
    above, below = np.maximum(places - ran.max(axis=0), 0), np.maximum(ran.min(axis=0) - places, 0)
    is_new = ~(np.abs(places[:, None] - ran) < 0.5).any(axis=1)
    return np.where(ordered, above - below, is_new)
