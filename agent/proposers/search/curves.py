"""Predict scores at places not tried yet: a bent curve for every dial, and few dials that matter.

A score is the sum of the dials' curves, an offset and noise. Tens of scores cannot tell how twenty dials act together,
but every run says something about each dial that it turned: so an edit may turn many at once. A curve is a line and a
parabola about the best script's place, and a level for each word where a dial's values are words. How large it may be
is the dial's own scale: most are near zero, and the scores decide which are not (sparse Bayesian regression: MacKay
1992; Tipping 2001). Curves are expected to bend upwards, since scripts are tuned. Each group of attempts has its
offset, so only differences within it count: a group is one night's attempts whose scripts differ in dials alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.proposers.search.places import Axis, Observation

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SLOPE, BEND = -1, -2
# Before a dial was turned, this is expected of it, in sigma of one run over half a range. In benchmarks/dial_runs.py, a
# step to the next choice moved the score by 1 to 14 sigma, and a tenth of a range by half a sigma.
SCALE, SCALE_OF_CHOICES = 3.0, 6.0
STRENGTH = 0.1  # weight of that expectation, in coefficients
DRAWS, ROUNDS = 24, 8  # with more rounds, few scores would rule out dials too soon
SHARE = 0.3  # share of the scores' variance that is taken for noise, where no repeated run has told it
MILD = 3.0  # typical differences; a score that is worse tells nothing more


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """The posterior of all curves: their mean and samples of them, by F coefficients, in bpb."""

    origin: Array  # (D,)
    dial: Indices  # (F,): the dial of each coefficient
    feature: Indices  # (F,): SLOPE, BEND, or a word
    mean: Array  # (F,)
    samples: Array  # (S, F)
    unit: float  # bpb; the noise of one run, or a substitute where that is not known

    @classmethod
    def fitted(
        cls,
        axes: Sequence[Axis],
        observations: Sequence[Observation],
        origin: Array,
        sigma_bpb: float | None,
        rng: np.random.Generator,
    ) -> "Curves":
        """Sample the posterior, by what has scores; sigma_bpb: the noise of one run, None if not known."""
        named = [(dial, feature) for dial, axis in enumerate(axes) for feature in [*range(axis.words)] or [SLOPE, BEND]]
        dial, feature = np.array(named).T
        names = [point.group for point in observations]
        compared = [point for point in observations if names.count(point.group) > 1]  # one alone tells its offset
        bpb = np.array([point.bpb for point in compared], np.float64)
        groups = np.unique([point.group for point in compared], return_inverse=True)[1]
        for group in set(groups.tolist()):
            bpb[groups == group] = _tempered(bpb[groups == group], sigma_bpb)
        features = _features(
            np.array([point.place for point in compared]).reshape(-1, len(axes)), origin, dial, feature
        )
        runs = np.array([point.runs for point in compared])
        spread = float(np.std(_without_offsets(bpb, groups, np.ones(len(bpb))))) if compared else 0.0
        unit = (SHARE**0.5 * spread if sigma_bpb is None else max(sigma_bpb, 1e-3 * spread)) or 1e-6
        usual = np.array([SCALE if axis.options is None else SCALE_OF_CHOICES for axis in axes])
        mean, covariance = _posterior(features, bpb / unit, runs, groups, dial, 1.0 * (feature == BEND), usual)
        drawn = rng.standard_normal((DRAWS, len(mean))) @ np.linalg.cholesky(covariance).T
        return cls(origin, dial, feature, unit * mean, unit * (mean + drawn), unit)

    def at(self, places: Array, coefficients: Array) -> Array:
        """Return every dial's part of the score at places (…, D), by coefficients (F,): (…, D)."""
        parts = _features(places, self.origin, self.dial, self.feature) * coefficients
        by_dial: Array = parts @ (self.dial[:, None] == np.arange(len(self.origin)))
        return by_dial

    def improvement(self, here: Array, there: Array) -> Array:
        """Return by how much places (P, D) are expected to be better than `here` (D,), if at all (Mockus 1975)."""
        levels = np.array([self.at(np.vstack([here, there]), sample).sum(axis=-1) for sample in self.samples])
        improvement: Array = np.maximum(levels[:, :1] - levels[:, 1:], 0).mean(axis=0)
        return improvement

    def gain(self, here: Array, there: Array) -> tuple[float, float]:
        """Return the expected fall of the score from one place (D,) to another, and its standard deviation."""
        falls = [
            float((self.at(here, coefficients) - self.at(there, coefficients)).sum())
            for coefficients in (self.mean, *self.samples)
        ]
        return falls[0], float(np.std(falls[1:]))


def _features(places: Array, origin: Array, dial: Indices, feature: Indices) -> Array:
    """Return (…, F): slope and curvature about the origin; of words, whether it is each of them."""
    there, here = places[..., dial], origin[dial]
    apart = 2 * (there - here)
    is_word = (np.abs(there - feature) < 0.5) * 1.0 - (np.abs(here - feature) < 0.5)
    return np.select([feature == SLOPE, feature == BEND], [apart, apart**2], is_word)


def _tempered(bpb: Array, sigma_bpb: float | None) -> Array:
    """Cap the worst scores: a learning rate that ruins a run must not set the scale for all."""
    first = bpb[0]
    mild = MILD * max(float(np.median(np.abs(bpb - first))), sigma_bpb or 0.0)
    return np.minimum(bpb, first + mild) if mild else bpb


def _posterior(
    features: Array, scores: Array, runs: Array, groups: Indices, dial: Indices, expected: Array, usual: Array
) -> tuple[Array, Array]:
    """Return mean (F,) and covariance of the coefficients, of scores (N,) in the noise of one run.

    Scales and misfit are those with the largest evidence, by expectation and maximisation. The misfit is variance
    beside the noise of seeds: dials that act together, curves that are no parabolas.
    expected: of the coefficients, in the scale of their dial. usual: the scale of each dial (D,) before it was turned.
    """
    counts, misfit = np.bincount(dial) + STRENGTH, 0.0
    scales = usual
    for _ in range(ROUNDS):
        trust = 1 / (1 / runs + misfit)
        centred = _without_offsets(features, groups, trust)
        values = _without_offsets(scores, groups, trust)
        inverse = np.linalg.inv(centred.T @ (centred * trust[:, None]) + np.diag(scales[dial] ** -2.0))
        covariance = (inverse + inverse.T) / 2
        mean = covariance @ (centred.T @ (values * trust) + expected / scales[dial])
        squares = np.bincount(dial, mean**2 + np.diagonal(covariance)) + STRENGTH * usual**2
        along = np.bincount(dial, expected * mean)
        scales = (np.sqrt(along**2 + 4 * counts * squares) - along) / (2 * counts)
        left = (values - centred @ mean) ** 2 + ((centred @ covariance) * centred).sum(axis=1)
        misfit = max(0.0, float((left - 1 / runs).mean())) if len(scores) else 0.0
    return mean, covariance


def _without_offsets(values: Array, groups: Indices, trust: Array) -> Array:
    """Take the weighted mean of each group from its values (N, …): an offset of which nothing is known."""
    members = (groups[:, None] == np.unique(groups)).astype(np.float64)  # (N, groups)
    weights = members * trust[:, None]
    centred: Array = values - members @ ((weights / np.maximum(weights.sum(axis=0), 1e-300)).T @ values)
    return centred
