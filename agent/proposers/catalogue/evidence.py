"""Collect what this night and earlier ones measured of known ideas, and estimate what each would bring. Pure.

A file's gain was measured by others, on other machines. So the true gain of an idea is taken to be

    share * promised + size * z,    z standard normal

where size is the promised gain, half of an expected loss, and LEAST_SIZE at least. The share of a promise that arrives
on this script and device is common to all ideas: a regression of what was measured on what was promised. Given it,
every idea has a normal posterior. So one idea's measurement corrects that idea, and a little all others: if promised
gains have come out at a tenth, less is expected of the next. A measurement under other conditions counts as one of
another gain, which deviates from this one by more the less the conditions are alike.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from agent.experiment import Attempt, History, Night, Status, incumbent, source_name
from agent.proposers.author.attempts import FAILURES, was_near
from agent.proposers.catalogue.idea import SMALL_GAIN_PERCENT, Idea
from agent.records.shipped import PastNight, likeness

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
    told, arrived = 1 / SHARE.variance, SHARE.mean / SHARE.variance
    for one in known:
        weight = one.likeness / (_size(one.promised_percent) ** 2 + one.variance)
        told += weight * one.promised_percent**2
        arrived += weight * one.promised_percent * (one.gain_percent or 0.0)
    return max(0.0, arrived / told)


def _size(promised_percent: float) -> float:
    """Return how far an idea deviates from its promise, in percent."""
    return max(promised_percent, -WARNING * promised_percent, LEAST_SIZE)


SOURCE = "catalogue"
OTHER_KIND = 0.05  # the likeness of a night on another kind of device, which likeness() takes for no evidence
UNKNOWN_SIGMA = 0.01  # of val_bpb: the noise of one run where a night does not tell it
CRASHES_BEFORE, TRIES_BEFORE = 0.1, 1.0  # of an idea that was never tried: some do not run everywhere
MOST_TRIES = 2  # of one idea in a night
HOPELESS = 0.05  # sure of a gain: below this, what was measured is enough


@dataclass(frozen=True, slots=True)
class Prospect:
    """Hold an idea with what is known of it and expected from it."""

    idea: Idea
    estimate: Estimate
    measured: tuple[Measured, ...]  # in this night and earlier ones
    attempts: tuple[Attempt, ...]  # of this night
    risk: float  # of a crash
    is_open: bool  # it may be tried on the incumbent, if it applies and is not unlikely
    why_not: str | None = None  # it does not apply to the script that was looked at

    @property
    def is_unlikely(self) -> bool:
        """Return whether it was measured, and is almost sure to bring no gain."""
        return self.estimate.sure < HOPELESS and any(one.gain_percent is not None for one in self.measured)

    @property
    def worth_percent(self) -> float:
        """Return the expected improvement by one attempt.

        A run takes the budget whatever is edited, and an idea's tokens/s count in its gain. So the order by
        this is the order by expected gain an hour.
        """
        return self.estimate.improvement_percent * (1 - self.risk)

    @property
    def nights(self) -> tuple[str, ...]:
        """Return the nights in which it was tried, in their order."""
        return tuple(dict.fromkeys(one.tag for one in self.measured))

    @property
    def gain_percent(self) -> float | None:
        """Return the mean of all measured gains, each weighted by how exact it is and how much its night tells."""
        gains = {one: one.gain_percent for one in self.measured if one.gain_percent is not None}
        weights = [one.likeness / max(one.error_percent, 1e-9) ** 2 for one in gains]
        return statistics.fmean(gains.values(), weights) if gains else None

    @property
    def kept(self) -> Attempt | None:
        """Return the attempt of this night by which it was kept, if it is."""
        return next((one for one in self.attempts if one.status is Status.KEEP), None)

    @property
    def state(self) -> str:
        """Say in a word whether the night may try it, or which attempt did."""
        if self.kept is not None:
            return f"kept #{self.kept.number}"
        if not self.is_open:
            return f"tried #{self.attempts[-1].number}"
        if self.why_not is not None:
            return "no"
        return "unlikely" if self.is_unlikely else "yes"


def prospects(
    ideas: Iterable[Idea], night: Night, history: History, sigma_bpb: float | None, past: Iterable[PastNight]
) -> list[Prospect]:
    """Return the ideas, the one first from which most is expected in this night.

    Equal ones come in an order that is the night's alone, so that two nights at once try different ones first.
    """
    by_slug = {idea.slug: idea for idea in ideas}
    measured: list[Measured] = []
    for other in past:
        attempts, alike = [outline.attempt for outline in other.attempts], likeness(other.night, night)
        measured += _of_night(by_slug, other.night, attempts, other.sigma_bpb, max(alike, OTHER_KIND))
    measured += _of_night(by_slug, night, history, sigma_bpb, 1.0)
    promised = {slug: idea.gain_percent[night.device_kind] for slug, idea in by_slug.items()}
    expected = estimates(promised, measured)
    found = []
    for slug, idea in by_slug.items():
        own = tuple(one for one in measured if one.slug == slug)
        tried = tuple(one for one in history if one.is_idea and slug_of(one.proposal.source) == slug)
        found.append(Prospect(idea, expected[slug], own, tried, _risk(own), _is_open(tried, history)))
    seed = f"{night.tag} {night.seed}"
    return sorted(found, key=lambda one: (-one.worth_percent, Random(f"{seed} {one.idea.slug}").random()))


def slug_of(source: str) -> str | None:
    """Return the idea's name in the source of a proposal; None for another source."""
    return source.partition(": ")[2] or None if source_name(source) == SOURCE else None


# ---- measurements ----------------------------------------------------------------------------------------------------


def _of_night(
    by_slug: Mapping[str, Idea], night: Night, attempts: Sequence[Attempt], sigma_bpb: float | None, alike: float
) -> Iterator[Measured]:
    by_number = {attempt.number: attempt for attempt in attempts}
    for attempt in attempts:
        slug = slug_of(attempt.proposal.source)
        if slug is None or slug not in by_slug or not attempt.is_idea:
            continue
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        failed = attempt.status is Status.CRASH or attempt.kind in FAILURES
        gain, error = (None, 0.0) if failed or parent is None else _gain_percent(attempt, parent, sigma_bpb)
        promised = by_slug[slug].gain_percent.get(night.device_kind, SMALL_GAIN_PERCENT)
        yield Measured(slug, night.tag, attempt.number, gain, error, promised, alike, failed)


def _gain_percent(attempt: Attempt, parent: Attempt, sigma_bpb: float | None) -> tuple[float | None, float]:
    """Return the gain over the parent and its standard deviation, by the scores: the judge's own estimate is shrunk.

    Of a run that was ended early there is only the forecast that the judge took.
    """
    if parent.val_bpb is None:
        return None, 0.0
    forecast_bpb = attempt.decision.gain_bpb if attempt.decision is not None else None
    gain_bpb = forecast_bpb if attempt.val_bpb is None else parent.val_bpb - attempt.val_bpb
    sigma = sigma_bpb if sigma_bpb is not None else UNKNOWN_SIGMA * parent.val_bpb
    error = sigma * math.sqrt(1 / max(1, attempt.seeds) + 1 / max(1, parent.seeds))
    return None if gain_bpb is None else 100 * gain_bpb / parent.val_bpb, 100 * error / parent.val_bpb


def _risk(measured: Sequence[Measured]) -> float:
    """Return the risk of a crash: the mean of a Beta posterior, in which unlike nights count less."""
    failed = sum(one.likeness for one in measured if one.failed)
    return (CRASHES_BEFORE + failed) / (TRIES_BEFORE + sum(one.likeness for one in measured))


# ---- further tries ---------------------------------------------------------------------------------------------------


def _is_open(attempts: Sequence[Attempt], history: History) -> bool:
    """Return whether an idea may be tried on the incumbent: never tried in this night, or a near miss on another."""
    if not attempts:
        return True
    last, best = attempts[-1], incumbent(history)
    has_changed = best is not None and best.number not in (last.number, last.parent)
    return len(attempts) < MOST_TRIES and has_changed and was_near(last)
