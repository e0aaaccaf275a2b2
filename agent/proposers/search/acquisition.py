"""Choose places to try, by the curves, by samples of them, and by the risk of a crash."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent.proposers.search.curves import Array, Curves, Flags, Scores
from agent.proposers.search.evidence import Evidence
from agent.proposers.search.space import Axis, Coordinates, draw_near

MOST_TURNED = 8  # dials at once
LEAST = 0.05  # sigma: what a dial's turn has to bring
SOME = 4  # draws whose mean is a candidate, too: nearer to the mean of all
CRASH = 4.0  # sigma: what a crash costs
DRAWN = 400  # places near the incumbent, for when all others were tried
ABOVE, BELOW = 0.25, 0.1  # edges to be met in a whole range beyond what ran, before any crash
ROUNDS, MOST_CRASHES = 3, 100  # of EM, and crashes that are looked at, the latest


@dataclass(frozen=True, slots=True, eq=False)
class Acquisition:
    """Weigh the places about the best one that was tried, dial by dial."""

    axes: Sequence[Axis]
    here: Coordinates  # of the incumbent
    centre: Coordinates  # of what ran, the place with the lowest expected score
    curves: Curves
    ran: Array  # (N, D): places that ran
    crashed: Array  # (C, D)
    ordered: Flags

    @classmethod
    def of(
        cls,
        axes: Sequence[Axis],
        here: Coordinates,
        evidence: Sequence[Evidence],
        sigma_bpb: float | None,
        rng: np.random.Generator,
    ) -> "Acquisition":
        """Fit the curves to all evidence; the centre is a place of this night that has a score.

        What is in flight has none yet. It counts with a score that is drawn from what is known (the kriging believer of
        Ginsbourger et al. 2010, randomised): so places near it promise less news, and several proposals at once differ.
        """
        ordered = np.array([axis.ordered for axis in axes])
        fine = [one for one in evidence if one.bpb is not None and not one.crashed]
        running = {one.group for one in fine}  # a script that never ran crashed for other reasons than its dials
        crashed = [one.place for one in evidence if one.crashed and one.group in running]
        pending = [one for one in evidence if one.is_pending and one.group in running]
        drawn = Curves.fitted(_scores(axes, fine), here, sigma_bpb, rng, draws=1) if pending else None
        believed = _believed(drawn, fine, pending) if drawn is not None else []
        curves = Curves.fitted(_scores(axes, [*fine, *believed]), here, sigma_bpb, rng)
        ran = np.array([here, *(one.place for one in fine)])
        tonight = np.array([here, *(one.place for one in fine if one.number is not None)])
        centre = tonight[np.argmin(curves.at(tonight, curves.mean).sum(axis=-1))]
        return cls(axes, here, centre, curves, ran, np.array(crashed).reshape(-1, len(axes)), ordered)

    def places(self, rng: random.Random, *, by_mean: bool) -> Iterator[Coordinates]:
        """Yield places to try: those of the samples, the most promising first, and then places near the incumbent.

        by_mean: the best place by the mean curves comes first.
        """
        options = self._options()
        cost = CRASH * self.curves.unit * edge_risk(self.ran, self.crashed, options, self.ordered)
        samples = self.curves.samples
        some = [samples[k : k + SOME].mean(axis=0) for k in range(0, len(samples), SOME)]
        mean, *drawn = (self._best(options, one, cost) for one in (self.curves.mean, *some, *samples))
        found = np.array([*drawn, mean])
        safe = np.prod(1 - edge_risk(self.ran, self.crashed, found, self.ordered), axis=-1)
        order = np.argsort(-self.curves.improvement(self.centre, found) * safe, kind="stable")
        yield from (mean, *found[order]) if by_mean else found[order]
        others = np.array(draw_near(self.axes, self.here, DRAWN, rng))
        risk = CRASH * self.curves.unit * edge_risk(self.ran, self.crashed, others, self.ordered)
        yield from others[np.argsort((self.curves.at(others, self.curves.mean) + risk).sum(axis=-1), kind="stable")]

    def _options(self) -> Array:  # (L, D)
        """Return the places of every dial that may be chosen, the present one first and where there are fewer."""
        columns = [
            axis.near(centre, here)
            for axis, centre, here in zip(self.axes, self.centre.tolist(), self.here.tolist(), strict=True)
        ]
        most = max(map(len, columns))
        return np.array([column + column[:1] * (most - len(column)) for column in columns]).T

    def _best(self, options: Array, coefficients: Array, cost: Array) -> Coordinates:
        """Turn those dials of the centre that bring most by these curves."""
        values = self.curves.at(options, coefficients) + cost
        at = values.argmin(axis=0)
        dials = np.arange(len(self.axes))
        middle = np.abs(options - self.centre).argmin(axis=0)  # the centre itself, or the present place within a step
        gains = values[middle, dials] - values[at, dials]
        place: Coordinates = options[middle, dials].copy()
        for dial in np.argsort(-gains, kind="stable")[:MOST_TURNED]:
            if gains[dial] > LEAST * self.curves.unit:
                place[dial] = options[at[dial], dial]
        return place


def _believed(curves: Curves, fine: Sequence[Evidence], pending: Sequence[Evidence]) -> list[Evidence]:
    """Return what is pending with scores by the first sample of the curves, at the level of its group."""
    drawn, found = curves.samples[0], []
    for one in pending:
        alike = [other for other in fine if other.group == one.group]
        parts = curves.at(np.array([other.place for other in alike]), drawn).sum(axis=-1)
        level = float(np.median(np.array([other.bpb for other in alike], np.float64) - parts))
        found.append(replace(one, bpb=level + float(curves.at(one.place, drawn).sum())))
    return found


def _scores(axes: Sequence[Axis], fine: Sequence[Evidence]) -> Scores:
    names = {group: i for i, group in enumerate(dict.fromkeys(one.group for one in fine))}
    return Scores(
        places=np.array([one.place for one in fine]).reshape(-1, len(axes)),
        bpb=np.array([one.bpb for one in fine], np.float64),
        runs=np.array([one.runs for one in fine], np.float64),
        groups=np.array([names[one.group] for one in fine], np.int64),
        words=np.array([0 if axis.ordered else len(axis.options or ()) for axis in axes], np.int64),
    )


# ---- crashes ---------------------------------------------------------------------------------------------------------


def edge_risk(fine: Array, crashed: Array, places: Array, ordered: Flags) -> Array:  # (L, D)
    """Return the risk that each dial crashes a run by itself, at places (L, D), from those that ran and crashed.

    Every dial may have an edge above and one below, beyond which runs crash: a learning rate that diverges, a size that
    does not fit. Between the places that ran there is none. A crash lies beyond the edge of some dial, and those that
    left what had run before share the blame by their risk without this crash (noisy-or: Pearl 1988; by a few rounds of
    EM).
    """
    crashed = crashed[-MOST_CRASHES:]
    count, tried = len(crashed), np.vstack([crashed, places])
    above, below = np.maximum(tried - fine.max(axis=0), 0), np.maximum(fine.min(axis=0) - tried, 0)
    seen = (np.abs(tried[:, None] - fine[None]) < 0.5).any(axis=1)  # of words
    above, below = np.where(ordered, above, 1.0 * ~seen), np.where(ordered, below, 0.0)
    unknown = 1 - np.exp(-ABOVE * above - BELOW * below)  # (C + L, D)
    # where a place is beyond the edge that a crash met, which is uniform from what ran up to the crash: (C, C + L, D)
    up, down = (_share_of(far[None], far[:count, None]) for far in (above, below))
    same = (np.abs(tried[None] - tried[:count, None]) < 0.5) & (above[:count, None] > 0)
    beyond = np.where(ordered, np.minimum(up + down, 1.0), 1.0 * same)
    blame = _shared(unknown[:count])  # (C, D)
    for _ in range(ROUNDS):
        spared = np.log1p(-blame[:, None] * beyond[:, :count])  # (C, C, D)
        others = spared.sum(axis=0) - np.diagonal(spared).T
        blame = _shared(1 - (1 - unknown[:count]) * np.exp(others))
    risk: Array = 1 - (1 - unknown[count:]) * np.exp(np.log1p(-blame[:, None] * beyond[:, count:]).sum(axis=0))
    return risk


def _share_of(far: Array, edge: Array) -> Array:
    """Return how much of the way to a crash a place goes, 0 to 1; 0 where the crash did not leave what ran."""
    return np.where(edge > 0, np.minimum(far / np.where(edge > 0, edge, 1.0), 1.0), 0.0)


def _shared(risk: Array) -> Array:
    """Share every crash (C, D) among the dials, by the odds of their risks."""
    odds = risk / (1 - np.minimum(risk, 0.999))
    shares: Array = np.minimum(odds / np.maximum(odds.sum(axis=-1, keepdims=True), 1e-9), 1 - 1e-9)
    return shares
