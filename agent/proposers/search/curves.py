"""Predict scores at places not tried yet: a bent curve for every dial, and few dials that matter.

A score is the sum of the dials' curves, an offset and the noise of its seeds. Tens of scores cannot tell how twenty
dials act together, but every run says something about each dial that it turned: so an edit may turn many at once. A
curve is a line and a parabola about the incumbent's place, and a level for each word where a dial's values are words.
How large it may be is the dial's own scale: most are near zero, and the scores decide which are not (sparse Bayesian
regression: MacKay 1992; Tipping 2001).
Curves are expected to bend upwards, since scripts are tuned. Each group of attempts has its offset, so only differences
within it count: a group is one night's attempts whose scripts differ in dials alone.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SCALE = 3.0  # of a curve, in sigma of one run, over half a range: what is expected of a dial before it was turned
STRENGTH = 0.1  # how many coefficients that expectation counts as
BENT = 1.0  # expected curvature of a curve, in its scale
DRAWS, ROUNDS = 24, 8  # with more rounds, few scores would rule out dials too soon
SHARE, LEAST_SHARE = 0.3, 0.03  # of the scores' variance that is noise, where no repeated run has told it
MILD = 3.0  # typical differences: worse than bad is no further news


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold the scores of N attempts on D dials."""

    places: Array  # (N, D)
    bpb: Array  # (N,)
    runs: Array  # (N,), that each is worth
    groups: npt.NDArray[np.int64]  # (N,)
    words: npt.NDArray[np.int64]  # (D,): how many a dial has, which are alike or not; 0 where its values are numbers


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Divide the dials into K blocks of two features and one scale each: a dial of numbers is one, two words are one.

    So a dial of forty words costs as much as twenty dials, and does not widen all others.
    """

    owner: npt.NDArray[np.int64]  # (K,): the dial of each block
    first: npt.NDArray[np.int64]  # (K,): the first of its two words; -1 of numbers

    @classmethod
    def of(cls, words: npt.NDArray[np.int64]) -> "Blocks":
        firsts = [range(0, count, 2) if count else (-1,) for count in words]
        found = [(dial, first) for dial, several in enumerate(firsts) for first in several]
        return cls(np.array([dial for dial, _ in found]), np.array([first for _, first in found]))

    @property
    def bends(self) -> Flags:  # (K,)
        """Return which blocks are a line and a parabola."""
        return self.first < 0

    def features(self, places: Array, origin: Array) -> Array:
        """Return (…, K, 2): slope and curvature about the origin; of words, whether it is each of the two."""
        there, here = places[..., self.owner], origin[self.owner]
        apart = 2 * (there - here)
        alike = [
            (np.abs(there - word) < 0.5) * 1.0 - (np.abs(here - word) < 0.5) for word in (self.first, self.first + 1)
        ]
        bent = np.stack([apart, apart**2], axis=-1)
        found: Array = np.where(self.bends[:, None], bent, np.stack(alike, axis=-1))
        return found

    def by_dial(self, parts: Array) -> Array:
        """Add up (…, K) by dial: (…, D)."""
        summed: Array = parts @ (self.owner[:, None] == np.arange(self.owner[-1] + 1))
        return summed


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Hold the posterior of all curves: their mean and samples of them, by coefficients (K, 2), in bpb."""

    origin: Array  # (D,)
    blocks: Blocks
    mean: Array  # (K, 2)
    samples: Array  # (S, K, 2)
    unit: float  # bpb: the noise of one run, or what passes for it where that is not known

    @classmethod
    def fitted(
        cls, scores: Scores, origin: Array, sigma_bpb: float | None, rng: np.random.Generator, draws: int = DRAWS
    ) -> "Curves":
        """Sample the posterior `draws` times; sigma_bpb: the noise of one run, None where it is not known."""
        bpb, names = scores.bpb.copy(), np.unique(scores.groups)
        for group in names:
            bpb[scores.groups == group] = _tempered(bpb[scores.groups == group], sigma_bpb)
        tells = np.isin(scores.groups, [group for group in names if (scores.groups == group).sum() > 1])
        blocks = Blocks.of(scores.words)
        features = blocks.features(scores.places[tells], origin).reshape(-1, 2 * len(blocks.owner))
        mean, covariance, unit = _posterior(
            features, bpb[tells], scores.runs[tells], scores.groups[tells], blocks.bends, sigma_bpb
        )
        drawn = rng.standard_normal((draws, len(mean))) @ np.linalg.cholesky(covariance).T
        shape = (-1, len(blocks.owner), 2)
        return cls(origin, blocks, unit * mean.reshape(shape)[0], unit * (mean + drawn).reshape(shape), unit)

    def at(self, places: Array, coefficients: Array) -> Array:
        """Return every dial's part of the score at places (…, D), by coefficients (K, 2): (…, D)."""
        return self.blocks.by_dial((self.blocks.features(places, self.origin) * coefficients).sum(axis=-1))

    def improvement(self, here: Array, there: Array) -> Array:
        """Return by how much places (P, D) are expected to be better than `here` (D,), if at all (Mockus 1975)."""
        levels = np.array([self.at(np.vstack([here, there]), one).sum(axis=-1) for one in self.samples])
        improvement: Array = np.maximum(levels[:, :1] - levels[:, 1:], 0).mean(axis=0)
        return improvement

    def gain(self, here: Array, there: Array) -> tuple[float, float]:
        """Return the expected fall of the score from one place (D,) to another, and its standard deviation."""
        falls = [float((self.at(here, one) - self.at(there, one)).sum()) for one in self.samples]
        return float((self.at(here, self.mean) - self.at(there, self.mean)).sum()), float(np.std(falls))


def _tempered(bpb: Array, sigma_bpb: float | None) -> Array:
    """Cap the worst scores: a learning rate that ruins a run must not set the scale for all."""
    first = bpb[0]
    mild = MILD * max(float(np.median(np.abs(bpb - first))), sigma_bpb or 0.0)
    return np.minimum(bpb, first + mild) if mild else bpb


def _posterior(
    features: Array, bpb: Array, runs: Array, groups: npt.NDArray[np.int64], bends: Flags, sigma_bpb: float | None
) -> tuple[Array, Array, float]:
    """Return mean (2K,) and covariance of the coefficients in a unit, and that unit, which is the noise of one run.

    Scales and misfit are those with the largest evidence, by expectation and maximisation. The misfit is variance
    beside the noise of seeds: dials that act together, curves that are no parabolas.
    """
    spread = float(np.std(_without_offsets(bpb, groups, np.ones(len(bpb))))) if len(bpb) else 0.0
    unit = (max(sigma_bpb, 1e-3 * spread) if sigma_bpb is not None else spread) or 1e-6
    variance, misfit = (1.0, 0.0) if sigma_bpb is not None else (SHARE, 0.0)
    expected = np.where(bends[:, None], [0.0, BENT], 0.0)  # (K, 2)
    scales = np.full(len(bends), SCALE)
    for _ in range(ROUNDS):
        trust = 1 / (variance / runs + misfit)
        told = _without_offsets(features, groups, trust)
        values = _without_offsets(bpb / unit, groups, trust)
        inverse = np.linalg.inv(told.T @ (told * trust[:, None]) + np.diag(np.repeat(scales**-2.0, 2)))
        covariance = np.asarray((inverse + inverse.T) / 2, np.float64)
        mean = covariance @ (told.T @ (values * trust) + (expected / scales[:, None]).ravel())
        squares = (mean**2 + np.diagonal(covariance)).reshape(-1, 2).sum(axis=1) + STRENGTH * SCALE**2
        along = (expected * mean.reshape(-1, 2)).sum(axis=1)
        scales = (np.sqrt(along**2 + 4 * (2 + STRENGTH) * squares) - along) / (2 * (2 + STRENGTH))
        left = (values - told @ mean) ** 2 + ((told @ covariance) * told).sum(axis=1)
        if len(bpb) and sigma_bpb is not None:
            misfit = float(max(0.0, (left - 1 / runs).mean()))
        elif len(bpb):
            variance = float(np.clip((left * runs).mean(), LEAST_SHARE, 1.0))
    return mean, covariance, unit


def _without_offsets(values: Array, groups: npt.NDArray[np.int64], trust: Array) -> Array:
    """Take the weighted mean of each group from its values (N, …): an offset of which nothing is known."""
    members = (groups[:, None] == np.unique(groups)).astype(np.float64)  # (N, groups)
    weights = members * trust[:, None]
    centred: Array = values - members @ ((weights / np.maximum(weights.sum(axis=0), 1e-300)).T @ values)
    return centred
