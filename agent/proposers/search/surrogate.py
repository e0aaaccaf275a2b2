"""Predict scores at places not tried yet: a Gaussian process that is a sum over the dials.

Each dial has its own curve, and a score is the sum of the curves, an offset and the noise of its seeds (additive
kernels: Duvenaud, Nickisch & Rasmussen, 2011, arXiv:1112.4394). Tens of scores cannot tell how twenty dials act
together, but they can tell which of them matter, and which way: every attempt says something about each dial that it
turned, and two near misses on different dials add up to a proposal. Each group of attempts has its
offset, so only differences within it count: a group is one night's attempts whose scripts differ in dials alone.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

REACH = 0.35  # of a range: how far a dial's curve stays alike
AMPLITUDES = (0.3, 1.0, 3.0)  # of a dial's curve, in sigma of one run; the likeliest is taken
NOISE_SHARES = (0.1, 0.3, 0.8)  # of the variance of all scores, where no repeated run has told the noise
OFFSET = 30.0  # of a group, in sigma: nothing is known of it
CRASH_REACH, CRASH_DOUBT = 0.2, 0.02  # shorter than for scores: crashes begin at edges


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hold the scores of N attempts on D dials."""

    places: Array  # (N, D)
    bpb: Array  # (N,)
    runs: Array  # (N,), that each is the mean of
    groups: npt.NDArray[np.int64]  # (N,)
    ordered: Flags  # (D,), False: words, which are alike or not


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """Predict by a Gaussian process fitted to the scores: differences to a place `here`, within a group."""

    scores: Scores
    amplitude: float  # bpb
    sigma: float  # bpb, of one run
    factor: Array  # (N, N), Cholesky's
    weights: Array  # (N,)
    log_evidence: float

    @classmethod
    def of(cls, scores: Scores, sigma_bpb: float | None) -> "Surrogate":
        """Fit the amplitude of the curves, and the noise if it is not known, by maximum likelihood."""
        return max(_candidates(scores, sigma_bpb), key=lambda one: one.log_evidence)

    def gains(self, here: Array, there: Array) -> tuple[Array, Array]:
        """Return the expected bpb that places (M, D) lie below `here` (D,), and its standard deviation: (M,), (M,)."""
        places = np.vstack([here, there])
        known = self._covariance(places, self.scores.places)  # (M + 1, N); a common offset cancels
        differences = known[:1] - known[1:]
        mean = differences @ self.weights
        prior = 2 * (len(here) * self.amplitude**2 - self._covariance(here[None], there)[0])
        explained = np.linalg.solve(self.factor, differences.T)  # (N, M)
        return mean, np.sqrt(np.maximum(prior - (explained**2).sum(axis=0), 1e-12 * self.amplitude**2))

    def _covariance(self, one: Array, other: Array) -> Array:
        return self.amplitude**2 * kernel(one, other, self.scores.ordered)


def _candidates(scores: Scores, sigma_bpb: float | None) -> Iterator[Surrogate]:
    sums = kernel(scores.places, scores.places, scores.ordered)
    same = scores.groups[:, None] == scores.groups[None, :]
    centred = scores.bpb - np.array([scores.bpb[scores.groups == group].mean() for group in scores.groups])
    spread = float(np.std(centred)) or 1e-6
    known = None if sigma_bpb is None else max(sigma_bpb, 1e-3 * spread)
    for sigma in [known] if known is not None else [spread * math.sqrt(share) for share in NOISE_SHARES]:
        for amplitude in AMPLITUDES:
            covariance = (amplitude * sigma) ** 2 * sums + (OFFSET * sigma) ** 2 * same
            factor = np.linalg.cholesky(covariance + np.diag(sigma**2 / scores.runs))
            whitened = np.linalg.solve(factor, centred)
            evidence = -0.5 * whitened @ whitened - np.log(np.diag(factor)).sum()
            yield Surrogate(
                scores, amplitude * sigma, sigma, factor, np.linalg.solve(factor.T, whitened), float(evidence)
            )


def kernel(one: Array, other: Array, ordered: Flags, reach: float = REACH) -> Array:  # (N, M)
    """Return the similarity (N, M) of places (N, D) and (M, D), summed by dial to avoid an array of (N, M, D)."""
    sums = np.zeros((len(one), len(other)))
    for here, there, is_number in zip(one.T, other.T, ordered, strict=True):
        apart = here[:, None] - there[None, :]
        sums += np.exp(-(apart**2) / (2 * reach**2)) if is_number else np.isclose(apart, 0)
    return sums


def expected_improvement(mean: Array, spread: Array) -> Array:
    """Return the expected improvement of an edit that is kept only if it is a gain (Mockus, 1975)."""
    z = mean / spread
    improvement: Array = spread * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))
    return improvement


def crash_risk(crashed: Array, fine: Array, there: Array, ordered: Flags) -> Array:
    """Return the risk of a crash, 0 to 1, at places (M, D), by the same kind of model fitted to crashes."""
    if not len(crashed):
        return np.zeros(len(there))
    seen = np.vstack([crashed, fine])
    said = np.concatenate([np.ones(len(crashed)), np.zeros(len(fine))])
    among = kernel(seen, seen, ordered, CRASH_REACH) / len(ordered) + CRASH_DOUBT * np.eye(len(seen))
    risk = kernel(there, seen, ordered, CRASH_REACH) / len(ordered) @ np.linalg.solve(among, said)
    clipped: Array = np.clip(risk, 0.0, 1.0)
    return clipped
