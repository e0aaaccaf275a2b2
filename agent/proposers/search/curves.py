"""Predict scores at places not tried yet: a bent curve for every dial, and few dials that matter.

A score is the sum of the dials' curves, an offset and the noise of its seeds. Tens of scores cannot tell how twenty
dials act together, but every run says something about each dial that it turned: so an edit may turn many at once. A
curve is a line and a parabola about the incumbent's place, and a level for each word where a dial's values are words.
How large it may be is the dial's own scale: most are near zero, and the scores decide which are not (sparse Bayesian
regression: Tipping 2001; here by Gibbs sampling, Geman & Geman 1984, with each dial's coefficients integrated out).
Curves are expected to bend upwards, since scripts are tuned. Each group of attempts has its offset, so only differences
within it count: a group is one night's attempts whose scripts differ in dials alone.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SCALES = np.array([0.05, 0.15, 0.4, 1.0, 2.5, 6.0, 15.0, 40.0])  # of a curve, in sigma of one run, over half a range
BENT = 1.0  # expected curvature of a curve, in its scale
BURNT, DRAWS, PARTS = 6, 24, 3  # sweeps that are thrown away, sweeps that are kept, parts of each
# Variance beside the noise of seeds: dials that act together, curves that are no parabolas. Each is so much less likely
# than the one before.
MISFITS, RARER = np.array([1.0, 1.2, 1.5, 2.0, 3.0, 5.0]) ** 2 - 1, 1.5
SHARES = np.array([0.03, 0.1, 0.2, 0.4, 0.7])  # of the scores' variance, where no repeated run has told the noise
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
        features = blocks.features(scores.places[tells], origin)
        gibbs = Gibbs(features, bpb[tells], scores.runs[tells], scores.groups[tells], blocks.bends, sigma_bpb)
        mean, samples = gibbs.sample(rng, draws)
        return cls(origin, blocks, mean * gibbs.unit, samples * gibbs.unit, gibbs.unit)

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


class Gibbs:
    """Sample coefficients, the dials' scales and the misfit in turns; all in units of the noise."""

    def __init__(
        self, features: Array, bpb: Array, runs: Array, groups: npt.NDArray[np.int64], bends: Flags,
        sigma_bpb: float | None,
    ) -> None:  # fmt: skip
        self._blocks, self._each = features.shape[1:]
        self._features, self._runs = features.reshape(len(bpb), self._blocks * self._each), runs
        self._members = (groups[:, None] == np.unique(groups)).astype(np.float64)  # (N, groups)
        centred = bpb - self._members @ (self._members.T @ bpb / np.maximum(self._members.sum(axis=0), 1))
        spread = float(np.std(centred)) if len(bpb) else 0.0
        self.unit = (max(sigma_bpb, 1e-3 * spread) if sigma_bpb is not None else spread) or 1e-6
        self._values = centred / self.unit
        if sigma_bpb is not None:
            self._variances = 1 / runs + MISFITS[:, None]  # (choices, N)
            self._log_prior = -RARER * np.arange(len(MISFITS))
        else:
            self._variances, self._log_prior = SHARES[:, None] / runs, np.zeros(len(SHARES))
        self._expected = np.zeros((self._blocks, self._each))
        self._expected[bends, 1] = BENT
        self._scales = np.ones(self._blocks)
        self._weights = np.full(len(SCALES), 1 / len(SCALES))
        self._choose_variance(0)

    def sample(self, rng: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Return the mean coefficients (K, 2) and samples of them (S, K, 2)."""
        means, samples = [], []
        for _ in range(BURNT + draws):
            for some in np.array_split(rng.permutation(self._blocks), min(PARTS, self._blocks)):
                self._draw_scales(some, rng)
            counts = (self._scales[:, None] == SCALES).sum(axis=0)
            self._weights = rng.dirichlet(counts + 0.5)
            mean, covariance = self._posterior()
            drawn = mean + np.linalg.cholesky(covariance) @ rng.standard_normal(len(mean))
            self._draw_variance(drawn, rng)
            means.append(mean)
            samples.append(drawn)
        shape = (-1, self._blocks, self._each)
        kept = np.array(samples[BURNT:]).reshape(shape)
        return np.array(means[BURNT:]).reshape(shape).mean(axis=0), kept

    def _posterior(self) -> tuple[Array, Array]:
        """Return mean and covariance of all coefficients, given the scales and the misfit."""
        precision = np.repeat(self._scales**-2, self._each)
        covariance = np.linalg.inv(self._gram + np.diag(precision))
        covariance = (covariance + covariance.T) / 2
        return covariance @ (self._moment + (self._expected / self._scales[:, None]).ravel()), covariance

    def _draw_scales(self, blocks: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
        """Draw the scales of some blocks, with all coefficients integrated out.

        Each is drawn given the old scales of all others, also of those that are drawn with it: an approximation, which
        spares an inversion for each block.
        """
        mean, covariance = self._posterior()
        own = blocks[:, None] * self._each + np.arange(self._each)
        inverse = np.linalg.inv(covariance[own[:, :, None], own[:, None, :]])
        expected, old = self._expected[blocks], self._scales[blocks][:, None]
        told = inverse - np.eye(self._each) / old[:, :, None] ** 2  # precision by the scores alone
        towards = np.einsum("kij,kj->ki", inverse, mean[own]) - expected / old
        size, axes = np.linalg.eigh(told)
        size = np.maximum(size, 0)[:, None]
        scales = SCALES[None, :, None]
        along = (
            np.einsum("kij,ki->kj", axes, towards)[:, None] + np.einsum("kij,ki->kj", axes, expected)[:, None] / scales
        )
        evidence = 0.5 * along**2 * scales**2 / (1 + size * scales**2) - 0.5 * np.log1p(size * scales**2)
        logs = evidence.sum(axis=-1) + np.log(self._weights)
        chances = np.exp(logs - logs.max(axis=1, keepdims=True)).cumsum(axis=1)
        picked = (chances < rng.random((len(blocks), 1)) * chances[:, -1:]).sum(axis=1)
        self._scales[blocks] = SCALES[picked]

    def _draw_variance(self, drawn: Array, rng: np.random.Generator) -> None:
        """Draw the misfit, given the coefficients; the groups' offsets are those by the present misfit."""
        left = self._values - self._features @ drawn
        left = left - self._members @ self._mean_by_group(left)
        logs = self._log_prior - 0.5 * (left**2 / self._variances + np.log(self._variances)).sum(axis=1)
        chances = np.exp(logs - logs.max()).cumsum()
        self._choose_variance(int((chances < rng.random() * chances[-1]).sum()))

    def _choose_variance(self, choice: int) -> None:
        """Set the misfit, and compute what the posterior needs of the scores under it."""
        self._trust = 1 / self._variances[choice]
        features = self._features - self._members @ self._mean_by_group(self._features)
        values = self._values - self._members @ self._mean_by_group(self._values)
        self._gram = features.T @ (features * self._trust[:, None])
        self._moment = features.T @ (values * self._trust)

    def _mean_by_group(self, values: Array) -> Array:
        """Return the weighted mean of (N, …) in each group: an offset of which nothing is known takes it away."""
        weights = self._members * self._trust[:, None]
        mean: Array = (weights / np.maximum(weights.sum(axis=0), 1e-300)).T @ values
        return mean
