"""Collect the measurements of known ideas, in this night and earlier ones, and estimate each idea's gain. Pure.

A file's gain was measured by others, on other machines. So the true gain of an idea is modelled as

    share * promised + size * (√GROUP_SHARE * u + √(1 - GROUP_SHARE) * z),    u and z standard normal

where size is the promised gain, half of an expected loss, and LEAST_SIZE at least. The share of a promise that arrives
on this script and device is common to all ideas: a regression of what was measured on what was promised. u is common to
the ideas of a group, and z is an idea's own; given the share, both have normal posteriors. So one idea's measurement
corrects that idea, less the others of its group, and a little all others: if promised gains have come out at a tenth,
less is expected of the next, and least of what does the same in another way. A measurement under other conditions
counts as one of another gain, which deviates from this one by more the less the conditions are alike.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from agent.experiment import Attempt, History, Night, Status, best_of, proposer_name
from agent.proposers.attempts import FAILURES, was_near
from agent.proposers.catalogue.files import NO_GROUP, KnownIdea
from agent.records.record import Record, likeness

PROPOSER = "catalogue"
SHARE = NormalDist(0.6, 0.5)  # expected share of a reported gain: gains shrink where they are copied
GROUP_SHARE = 0.25  # correlation of what two ideas of a group bring: some 0.2 in the shipped nights, 0 across groups
LEAST_SIZE = 0.1  # percent: so much is open even about an idea of which nothing is promised
LEAST_ERROR = 0.01  # percent: a script that ignores its seed has no noise, and yet its next version differs
WARNING = 0.5  # share of the loss that an idea's file expects; few are wrong by all of it, and a gain is what counts
UNKNOWN_SIGMA = 0.01  # share of val_bpb: the noise of one run, where a night does not tell it
CRASHES_BEFORE, TRIES_BEFORE = 0.1, 1.0  # assumed for an untried idea: some do not run everywhere
MOST_TRIES = 2  # tries of one idea in a night
HOPELESS = 0.05  # sure of a gain: below this, what was measured is enough
STANDARD = NormalDist()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One attempt of an idea; gains are percent of val_bpb."""

    slug: str
    tag: str  # tag of the night
    number: int
    gain_percent: float | None  # gain over the attempt's parent; None if it failed, or is not decided
    error_percent: float  # standard deviation of that gain
    likeness: float  # likeness of that night to this one: 1 for this one, near 0 where it tells hardly anything
    failed: bool = False  # crashed, too slow, or not believed

    @property
    def words(self) -> str:
        """Say what was measured, and in which night."""
        if self.gain_percent is None:
            return f"{'failed' if self.failed else 'no score'} in {self.tag}"
        return f"{self.gain_percent:+.2f} % ± {self.error_percent:.2f} in {self.tag}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected gain of an idea, in percent of val_bpb."""

    mean_percent: float
    spread_percent: float  # standard deviation

    @property
    def sure(self) -> float:
        """Return the probability of a gain."""
        return STANDARD.cdf(self.mean_percent / self.spread_percent)

    @property
    def improvement_percent(self) -> float:
        """Return the mean of max(0, gain), as an idea is kept only where it is a gain (Mockus, 1975)."""
        density = STANDARD.pdf(self.mean_percent / self.spread_percent)
        return self.mean_percent * self.sure + self.spread_percent * density


def estimates(
    promised: Mapping[str, float], group: Mapping[str, str], measured: Iterable[Measurement]
) -> dict[str, Estimate]:
    """Return the estimate for each idea, given the promised gains, the groups, and all measurements of ideas."""
    size = {slug: max(gain, -WARNING * gain, LEAST_SIZE) for slug, gain in promised.items()}
    precision, arrived = 1 / SHARE.variance, SHARE.mean / SHARE.variance
    weights, sums = dict.fromkeys(promised, 0.0), dict.fromkeys(promised, 0.0)  # of an idea's gains, by exactness
    for measurement in measured:
        if measurement.gain_percent is not None:
            slug, error = measurement.slug, max(measurement.error_percent, LEAST_ERROR)
            variance = error**2 + size[slug] ** 2 * (1 / measurement.likeness - 1)
            weight = 1 / (size[slug] ** 2 + variance)
            precision += weight * promised[slug] ** 2
            arrived += weight * promised[slug] * measurement.gain_percent
            weights[slug] += 1 / variance
            sums[slug] += measurement.gain_percent / variance
    share = max(0.0, arrived / precision)
    expected = {slug: share * gain for slug, gain in promised.items()}
    common = {slug: math.sqrt(GROUP_SHARE) * each for slug, each in size.items()}  # what one u is worth to an idea
    own = {slug: (1 - GROUP_SHARE) * each**2 for slug, each in size.items()}  # variance that is left when u is known
    precisions, pulls = dict.fromkeys(group.values(), 1.0), dict.fromkeys(group.values(), 0.0)  # of u
    for slug, weight in weights.items():
        seen = 1 + own[slug] * weight
        precisions[group[slug]] += common[slug] ** 2 * weight / seen
        pulls[group[slug]] += common[slug] * (sums[slug] - expected[slug] * weight) / seen
    found = {}
    for slug, weight in weights.items():
        left = 1 / (1 + own[slug] * weight)  # share of the expectation that the idea's own measurements leave
        u, variance = pulls[group[slug]] / precisions[group[slug]], 1 / precisions[group[slug]]
        mean = left * (expected[slug] + common[slug] * u + own[slug] * sums[slug])
        found[slug] = Estimate(mean, math.sqrt(left * own[slug] + (left * common[slug]) ** 2 * variance))
    return found


@dataclass(frozen=True, slots=True)
class Prospect:
    """An idea with its measurements and its expected gain."""

    idea: KnownIdea
    estimate: Estimate
    measured: tuple[Measurement, ...]  # attempts of the idea in this night, and in earlier ones on this kind of device
    attempts: tuple[Attempt, ...]  # attempts of the idea in this night
    is_open: bool  # the idea may be tried on the best script, if it applies and is not unlikely
    applies: bool = True  # the patch fits the script that was looked at

    @property
    def is_unlikely(self) -> bool:
        """Return whether it was measured, and is almost sure to bring no gain."""
        return self.estimate.sure < HOPELESS and self.gain_percent is not None

    @property
    def worth_percent(self) -> float:
        """Return the expected improvement by one attempt, less the risk of a crash.

        A run takes the budget whatever is edited, and an idea's tokens/s count in its gain. So the order by
        this is the order by expected gain an hour. The risk is the mean of a Beta posterior.
        """
        failed = sum(measurement.likeness for measurement in self.measured if measurement.failed)
        risk = (CRASHES_BEFORE + failed) / (TRIES_BEFORE + sum(measurement.likeness for measurement in self.measured))
        return self.estimate.improvement_percent * (1 - risk)

    @property
    def nights(self) -> tuple[str, ...]:
        """Return the nights in which it was tried, in their order."""
        return tuple(dict.fromkeys(measurement.tag for measurement in self.measured))

    @property
    def gain_percent(self) -> float | None:
        """Return the mean of all measured gains, each weighted by how exact it is and how much its night tells."""
        gains = {
            measurement: measurement.gain_percent
            for measurement in self.measured
            if measurement.gain_percent is not None
        }
        weights = [measurement.likeness / max(measurement.error_percent, LEAST_ERROR) ** 2 for measurement in gains]
        return statistics.fmean(gains.values(), weights) if gains else None

    @property
    def state(self) -> str:
        """Say in a word whether the night may try it, or which attempt did."""
        kept = [attempt.number for attempt in self.attempts if attempt.status is Status.KEEP]
        if kept:
            return f"kept #{kept[0]}"
        if not self.is_open:
            return f"tried #{self.attempts[-1].number}"
        if not self.applies:
            return "no"
        return "unlikely" if self.is_unlikely else "yes"


def prospects(
    ideas: Iterable[KnownIdea], night: Night, history: History, sigma_bpb: float | None, past: Iterable[Record]
) -> list[Prospect]:
    """Return the ideas, the largest expected gain first.

    The night's tag decides between equal ideas, so that two nights at once try different ones first.
    """
    by_slug = {idea.slug: idea for idea in ideas}
    measured: list[Measurement] = []
    for other in past:
        alike = likeness(other.night, night)
        if alike:  # gains of another kind of device say nothing about this one
            measured += _measured(by_slug, other.tag, other.attempts, other.sigma_bpb, alike)
    measured += _measured(by_slug, night.tag, history, sigma_bpb, 1.0)
    promised = {slug: idea.gain_percent[night.device_kind] for slug, idea in by_slug.items()}
    groups = {slug: slug if idea.group == NO_GROUP else idea.group for slug, idea in by_slug.items()}
    expected = estimates(promised, groups, measured)
    listed = []
    for slug, idea in by_slug.items():
        own = tuple(measurement for measurement in measured if measurement.slug == slug)
        tried = tuple(attempt for attempt in history if attempt.is_idea and slug_of(attempt.proposer) == slug)
        listed.append(Prospect(idea, expected[slug], own, tried, _is_open(tried, history)))
    seed = f"{night.tag} {night.seed}"
    return sorted(
        listed,
        key=lambda prospect: (-prospect.worth_percent, Random(f"{seed} {prospect.idea.slug}").random()),
    )


def slug_of(proposer: str) -> str | None:
    """Return which idea of the catalogue a proposal's proposer names; None for another proposer."""
    return proposer.partition(": ")[2] or None if proposer_name(proposer) == PROPOSER else None


def _measured(
    by_slug: Mapping[str, KnownIdea], tag: str, attempts: Sequence[Attempt], sigma_bpb: float | None, alike: float
) -> Iterator[Measurement]:
    for attempt in attempts:
        slug = slug_of(attempt.proposer)
        if slug in by_slug and slug is not None and attempt.is_idea:
            parent = attempts[attempt.parent] if attempt.parent is not None else None
            failed = attempt.status is Status.CRASH or attempt.kind in FAILURES
            gain, error = (None, 0.0) if failed or parent is None else _gain_percent(attempt, parent, sigma_bpb)
            yield Measurement(slug, tag, attempt.number, gain, error, alike, failed)


def _gain_percent(attempt: Attempt, parent: Attempt, sigma_bpb: float | None) -> tuple[float | None, float]:
    """Return the gain over the parent and its standard deviation, by the scores: the judge's own estimate is shrunk.

    Of a run that was ended early there is only the forecast that the judge took.
    """
    gain_bpb = attempt.decision.gain_bpb if attempt.decision is not None else None
    if parent.val_bpb is not None and attempt.val_bpb is not None:
        gain_bpb = parent.val_bpb - attempt.val_bpb
    if not parent.val_bpb or gain_bpb is None:
        return None, 0.0
    sigma = sigma_bpb if sigma_bpb is not None else UNKNOWN_SIGMA * parent.val_bpb
    error = sigma * math.sqrt(1 / max(1, attempt.seeds) + 1 / max(1, parent.seeds))
    return 100 * gain_bpb / abs(parent.val_bpb), 100 * error / abs(parent.val_bpb)


def _is_open(attempts: Sequence[Attempt], history: History) -> bool:
    """Return whether an idea may be tried on the best script: never tried in this night, or a near miss on another."""
    if not attempts:
        return True
    last, best = attempts[-1], best_of(history)
    has_changed = best is not None and best.number not in (last.number, last.parent)
    return len(attempts) < MOST_TRIES and has_changed and was_near(last)
