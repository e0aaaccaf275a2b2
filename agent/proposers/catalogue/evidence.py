"""Collect what this night and earlier ones measured of known ideas."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from agent.experiment import Attempt, History, Night, Status, incumbent, source_name
from agent.proposers.author.near import FAILURES, was_near
from agent.proposers.catalogue.gains import Estimate, Measured, estimates
from agent.proposers.catalogue.idea import SMALL_GAIN_PERCENT, Idea
from agent.records.past import PastNight, likeness

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


def prospects(
    ideas: Iterable[Idea], night: Night, history: History, sigma_bpb: float | None, past: Iterable[PastNight]
) -> list[Prospect]:
    """Return the ideas, the one first from which most is expected in this night.

    Equal ones come in an order that is the night's alone, so that two nights at once try different ones first.
    """
    by_slug = {idea.slug: idea for idea in ideas}
    attempts: dict[str, list[Attempt]] = {slug: [] for slug in by_slug}
    for one in history:
        if one.is_idea and (slug := slug_of(one.proposal.source)) in attempts:
            attempts[slug].append(one)
    measured: dict[str, list[Measured]] = {slug: [] for slug in by_slug}
    for found in (*_of_past(by_slug, night, past), *_of_tonight(by_slug, night, history, attempts, sigma_bpb)):
        measured[found.slug].append(found)
    kind = night.device_kind
    promised = {slug: idea.gain_percent[kind] for slug, idea in by_slug.items()}
    expected = estimates(promised, [one for ones in measured.values() for one in ones])
    known = [
        Prospect(
            idea, expected[slug], tuple(measured[slug]), tuple(attempts[slug]), _risk(measured[slug]),
            _is_open(attempts[slug], history),
        )
        for slug, idea in by_slug.items()
    ]  # fmt: skip
    seed = f"{night.tag} {night.seed}"
    return sorted(known, key=lambda one: (-one.worth_percent, Random(f"{seed} {one.idea.slug}").random()))


def slug_of(source: str) -> str | None:
    """Return the idea's name in the source of a proposal; None for another source."""
    return source.partition(": ")[2] or None if source_name(source) == SOURCE else None


# ---- measurements ----------------------------------------------------------------------------------------------------


def _of_past(by_slug: Mapping[str, Idea], night: Night, past: Iterable[PastNight]) -> Iterator[Measured]:
    for other in past:
        attempts = [outline.attempt for outline in other.attempts]
        alike = max(likeness(other.night, night), OTHER_KIND)
        yield from _of_night(by_slug, other.night, attempts, other.sigma_bpb, alike)


def _of_tonight(
    by_slug: Mapping[str, Idea],
    night: Night,
    history: History,
    attempts: Mapping[str, Sequence[Attempt]],
    sigma_bpb: float | None,
) -> Iterator[Measured]:
    tried = [one for ones in attempts.values() for one in ones]
    wanted = {one.number for one in tried} | {one.parent for one in tried if one.parent is not None}
    return _of_night(by_slug, night, [history[number] for number in sorted(wanted)], sigma_bpb, 1.0)


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
