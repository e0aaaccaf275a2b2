"""Estimate what known ideas would bring: by their files, corrected by every measurement of them. Pure.

A file's gain was measured by others, on other machines. So the true gain of an idea is taken to be

    share * promised + size * z,    z standard normal

where size is the promised gain, half of an expected loss, and LEAST_SIZE at least. The share of a promise that arrives
on this script and device is common to all ideas: a regression of what was measured on what was promised. Given it,
every idea has a normal posterior. So one idea's measurement corrects that idea, and a little all others: if promised
gains have come out at a tenth, less is expected of the next. A measurement under other conditions counts as one of
another gain, which deviates from this one by more the less the conditions are alike.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

SHARE = NormalDist(0.6, 0.5)  # before anything is measured: gains shrink where they are copied, and seldom grow
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

    @property
    def variance(self) -> float:
        return max(self.error_percent, LEAST_ERROR) ** 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold what an idea is expected to bring, in percent of val_bpb."""

    gain: NormalDist

    @property
    def mean_percent(self) -> float:
        return self.gain.mean

    @property
    def spread_percent(self) -> float:
        """Return the standard deviation."""
        return self.gain.stdev

    @property
    def sure(self) -> float:
        """Return the probability of a gain."""
        return STANDARD.cdf(self.gain.mean / self.gain.stdev)

    @property
    def improvement_percent(self) -> float:
        """Return the mean of max(0, gain), as an idea is kept only where it is a gain (Mockus, 1975)."""
        return self.gain.mean * self.sure + self.gain.stdev * STANDARD.pdf(self.gain.mean / self.gain.stdev)


def estimates(promised: Mapping[str, float], measured: Iterable[Measured]) -> dict[str, Estimate]:
    """Return the estimate for each idea, given the promised gains and all measurements of ideas."""
    known = [one for one in measured if one.gain_percent is not None and one.likeness > 0 and one.slug in promised]
    share = _share(known)
    found = {slug: NormalDist(share * gain, _size(gain)) for slug, gain in promised.items()}
    for one in known:
        before, here = found[one.slug], promised[one.slug]
        # elsewhere another gain was promised: the news is how far the idea missed that one
        surprise = (one.gain_percent or 0.0) - before.mean - share * (one.promised_percent - here)
        # which may differ from this one by the larger of both sizes: 8 % on a CPU tell little about 1 % here
        unlike = max(_size(here), _size(one.promised_percent)) ** 2 * (1 / one.likeness - 1)
        pull = before.variance / (before.variance + one.variance + unlike)
        found[one.slug] = NormalDist(before.mean + pull * surprise, math.sqrt(before.variance * (1 - pull)))
    return {slug: Estimate(gain) for slug, gain in found.items()}


def _share(known: Sequence[Measured]) -> float:
    """Return the share of a promise that arrives here, 0 at least; a measurement counts by its likeness."""
    weights = [one.likeness / (_size(one.promised_percent) ** 2 + one.variance) for one in known]
    told = math.fsum(w * one.promised_percent**2 for w, one in zip(weights, known, strict=True))
    arrived = math.fsum(
        w * one.promised_percent * (one.gain_percent or 0.0) for w, one in zip(weights, known, strict=True)
    )
    return max(0.0, (SHARE.mean / SHARE.variance + arrived) / (1 / SHARE.variance + told))


def _size(promised_percent: float) -> float:
    """Return how far an idea deviates from its promise, in percent."""
    return max(promised_percent, -WARNING * promised_percent, LEAST_SIZE)
