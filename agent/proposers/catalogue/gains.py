"""Estimate what known ideas would bring: by their files, corrected by every measurement of them. Pure.

A file's gain was measured by others, on other machines. So the true gain of an idea is taken to be

    share * promised + scatter * size * z,    z standard normal

where size is the promised gain, half of an expected loss, and LEAST_SIZE at least. share and scatter are common to all
ideas: how much of a promise arrives on this script and device, and how far single ideas deviate from that. Their
posterior is exact on a grid (hierarchical Bayes: Lindley & Smith 1972), and given the two every idea has a normal
posterior. So one idea's measurement corrects that idea, and a little all others: if promised gains have come out at a
tenth, a tenth is expected of the next. A measurement under other conditions counts as one of another gain, which
deviates from this one by more the less the conditions are alike, and for share and scatter it counts by its likeness
(a power prior: Ibrahim & Chen 2000). Measurements count as independent, although attempts of one parent share the error
of its score, and nights on one other device whatever is different there.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

# All pairs are equally likely before anything is measured. Gains shrink where they are copied, and seldom grow.
SHARES = (1.5, 1.0, 0.7, 0.5, 0.25, 0.1, 0.0)
SCATTERS = (2.0, 1.0, 0.5)  # never less: that one promise came true says little about the next
LEAST_SIZE = 0.1  # percent: so much is open even about an idea of which nothing is promised
LEAST_ERROR = 0.01  # percent: a script that ignores its seed has no noise, and yet its next version differs
WARNING = 0.5  # of the size of a loss that a file expects: few are wrong by all of it, and a gain is what counts
STANDARD = NormalDist()


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold one attempt of an idea; gains are percent of val_bpb."""

    slug: str
    tag: str  # of the night
    number: int
    gain_percent: float | None  # over the attempt's parent; None if it failed, or is not decided
    error_percent: float  # standard deviation of that gain
    promised_percent: float  # by the idea's file, on the device of that night
    likeness: float  # of that night to this one: 1 for this one, near 0 where it tells hardly anything
    failed: bool = False  # crashed, too slow, or not believed

    @property
    def words(self) -> str:
        """Say what was measured, and in which night."""
        if self.gain_percent is None:
            return f"{'failed' if self.failed else 'no score'} in {self.tag}"
        return f"{self.gain_percent:+.2f} % ± {self.error_percent:.2f} in {self.tag}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold what an idea is expected to bring, in percent of val_bpb."""

    mean_percent: float
    spread_percent: float  # standard deviation
    sure: float  # the probability of a gain
    improvement_percent: float  # expected, if the edit is kept only where it is a gain (Mockus, 1975)


@dataclass(frozen=True, slots=True)
class World:
    """Hold the posterior of every gain, in percent, if this share of the promises arrives, with this scatter."""

    share: float
    scatter: float
    beliefs: Mapping[str, NormalDist]
    log_evidence: float

    @classmethod
    def of(cls, share: float, scatter: float, promised: Mapping[str, float], measured: Iterable[Measured]) -> "World":
        """Compute every posterior, one measurement after another, and the probability of all measurements (its log)."""
        beliefs = {slug: NormalDist(share * gain, scatter * _size(gain)) for slug, gain in promised.items()}
        log_evidence = 0.0
        for one in measured:
            if one.gain_percent is None or one.slug not in beliefs:
                continue
            belief = beliefs[one.slug]
            # elsewhere another gain was promised: the news is how far the idea missed that one
            expected = belief.mean + share * (one.promised_percent - promised[one.slug])
            # which may differ from this one by the larger of both sizes: 8 % on a CPU tell little about 1 % here
            size = max(_size(promised[one.slug]), _size(one.promised_percent))
            unlike = (scatter * size) ** 2 * (1 / one.likeness - 1)
            variance = belief.variance + max(one.error_percent, LEAST_ERROR) ** 2 + unlike
            surprise = one.gain_percent - expected
            log_evidence -= 0.5 * one.likeness * (surprise**2 / variance + math.log(variance))
            pull = belief.variance / variance
            beliefs[one.slug] = NormalDist(belief.mean + pull * surprise, math.sqrt(belief.variance * (1 - pull)))
        return cls(share, scatter, beliefs, log_evidence)


def estimates(promised: Mapping[str, float], measured: Iterable[Measured]) -> dict[str, Estimate]:
    """Return the estimate for each idea, given the promised gains and all measurements of ideas."""
    known = [one for one in measured if one.likeness > 0]
    worlds = [World.of(share, scatter, promised, known) for share, scatter in product(SHARES, SCATTERS)]
    highest = max(world.log_evidence for world in worlds)
    likely = [math.exp(world.log_evidence - highest) for world in worlds]
    weights = [one / sum(likely) for one in likely]
    return {
        slug: _mixed([(weight, world.beliefs[slug]) for weight, world in zip(weights, worlds, strict=True)])
        for slug in promised
    }


def _size(promised_percent: float) -> float:
    """Return how large a deviation from the promise is, in percent, at a scatter of one."""
    return max(promised_percent, -WARNING * promised_percent, LEAST_SIZE)


def _mixed(beliefs: Iterable[tuple[float, NormalDist]]) -> Estimate:
    """Return the estimate of a mixture of normal beliefs with these shares."""
    parts = list(beliefs)
    mean = sum(weight * one.mean for weight, one in parts)
    square = sum(weight * (one.variance + (one.mean - mean) ** 2) for weight, one in parts)
    sure = sum(weight * STANDARD.cdf(one.mean / one.stdev) for weight, one in parts)
    improvement = sum(weight * _improvement(one) for weight, one in parts)
    return Estimate(mean, math.sqrt(square), sure, improvement)


def _improvement(belief: NormalDist) -> float:
    """Return the mean of max(0, gain)."""
    z = belief.mean / belief.stdev
    return belief.mean * STANDARD.cdf(z) + belief.stdev * STANDARD.pdf(z)
