"""Read what this night and earlier ones measured, as places among the dials."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agent.experiment import Attempt, Ending, History, Status
from agent.judging.failures import too_slow
from agent.proposers.briefing import Briefing
from agent.proposers.search.space import Axis, Coordinates
from agent.records.shipped import Outline, PastNight, likeness
from agent.script.dials import Value, dials_in, skeleton_in

MOST = 300  # attempts that the model looks at, which bounds a proposal's time
LEAST_LIKE = 0.05  # an earlier night that is less like this one tells nothing


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Hold an attempt as a place among the dials; scores are compared only within a group."""

    place: Coordinates
    bpb: float | None  # its score; the forecast of a run that was ended early; None where there is neither
    runs: float  # of tonight's that it is worth
    crashed: bool  # or overran: both happen beyond some edge among the dials
    group: str
    number: int | None  # tonight's attempt
    is_pending: bool = False  # it is measured now, and has no score yet


@dataclass(frozen=True, slots=True)
class Candidate:
    """Hold what tells whether an attempt is worth reading: to place it among the dials takes much longer."""

    group: str
    number: int | None  # tonight's attempt
    read: Callable[[], Evidence | None]  # None: it has no place among these dials


def evidence_of(
    axes: Sequence[Axis], briefing: Briefing, device_kind: str, earlier: Sequence[PastNight]
) -> list[Evidence]:
    """Return what is known, the most telling at most, in order of time."""
    found = [*_of_earlier(axes, briefing, earlier), *_of_tonight(axes, briefing.history, device_kind)]
    group = _group("", skeleton_in(briefing.parent.proposal.script, device_kind))
    chosen = most_telling(found, group, briefing.parent.number)
    return [evidence for candidate in chosen if (evidence := candidate.read()) is not None]


def most_telling(found: Sequence[Candidate], group: str, best: int) -> list[Candidate]:
    """Choose MOST attempts in their order: the incumbent first, then its own group, then the latest."""
    first = sorted(range(len(found)), key=lambda i: (found[i].number != best, found[i].group != group, -i))
    return [found[i] for i in sorted(first[:MOST])]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_tonight(axes: Sequence[Axis], history: History, device_kind: str) -> Iterator[Candidate]:
    for attempt in history:
        group = _group("", skeleton_in(attempt.proposal.script, device_kind))
        yield Candidate(group, attempt.number, partial(_evidence, axes, attempt, group, history, device_kind))


def _evidence(
    axes: Sequence[Axis], attempt: Attempt, group: str, history: History, device_kind: str
) -> Evidence | None:
    place = _place(axes, dials_in(attempt.proposal.script, device_kind))
    if place is None:
        return None
    runs, bpb = max(1, len(attempt.scores_bpb)), _score_of(attempt, history)
    pending = bpb is None and attempt.decision is None
    return Evidence(place, bpb, runs, crashed(attempt), group, attempt.number, is_pending=pending)


def _of_earlier(axes: Sequence[Axis], briefing: Briefing, earlier: Sequence[PastNight]) -> Iterator[Candidate]:
    """Yield what earlier nights say, the most alike last: in this night's noise, each run by its night's likeness."""
    sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
    alike = [(like, past) for past in earlier if (like := likeness(past.night, briefing.night)) >= LEAST_LIKE]
    for like, past in sorted(alike, key=lambda pair: pair[0]):
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        for outline in past.attempts:
            group = _group(past.night.tag, outline.skeleton)
            yield Candidate(group, None, partial(_evidence_of_outline, axes, outline, group, like, scale))


def _evidence_of_outline(
    axes: Sequence[Axis], outline: Outline, group: str, like: float, scale: float
) -> Evidence | None:
    place, attempt = _place(axes, outline.dials), outline.attempt
    if place is None:
        return None
    bpb = None if attempt.val_bpb is None else attempt.val_bpb * scale
    return Evidence(place, bpb, max(1, attempt.seeds) * like, attempt.status is Status.CRASH, group, None)


def _place(axes: Sequence[Axis], values: Mapping[str, Value]) -> Coordinates | None:
    """Return the place of these dials; None if the script has none of them, or one has no place."""
    if not any(axis.dial.name in values for axis in axes):
        return None
    # a dial that is not there says nothing: it counts as where it is now
    place = np.array([axis.place(values.get(axis.dial.name, axis.dial.value)) for axis in axes], np.float64)
    return place if np.isfinite(place).all() else None


def _group(night: str, form: str) -> str:
    return f"{night} {form}"


def _score_of(attempt: Attempt, history: History) -> float | None:
    """Return the score, or the forecast of a run that was stopped early: without it, its place would look unknown."""
    if attempt.val_bpb is not None or attempt.decision is None or attempt.decision.gain_bpb is None:
        return attempt.val_bpb
    parent = history[attempt.parent].val_bpb if attempt.parent is not None else None
    if parent is None or not any(run.ending is Ending.HOPELESS for run in attempt.done_runs):
        return None
    return parent - attempt.decision.gain_bpb
