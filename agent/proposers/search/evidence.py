"""Read what this night and earlier ones measured, as places among the dials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.experiment import Attempt, Ending, History, Status
from agent.judging.failures import too_slow
from agent.proposers.briefing import Briefing
from agent.proposers.search.space import Axis, Coordinates
from agent.records.shipped import PastNight, likeness
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


def evidence_of(
    axes: Sequence[Axis], briefing: Briefing, device_kind: str, earlier: Sequence[PastNight]
) -> list[Evidence]:
    """Return what is known, the most telling at most, in order of time."""
    found = [*_of_earlier(axes, briefing, earlier), *_of_tonight(axes, briefing.history, device_kind)]
    group = _group("", skeleton_in(briefing.parent.proposal.script, device_kind))
    return most_telling(found, group, briefing.parent.number)


def most_telling(evidence: Sequence[Evidence], group: str, best: int) -> list[Evidence]:
    """Choose MOST places in their order: the incumbent first, then its own group, then the latest."""
    first = sorted(range(len(evidence)), key=lambda i: (evidence[i].number != best, evidence[i].group != group, -i))
    return [evidence[i] for i in sorted(first[:MOST])]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_tonight(axes: Sequence[Axis], history: History, device_kind: str) -> Iterator[Evidence]:
    for attempt in history:
        place = _place(axes, dials_in(attempt.proposal.script, device_kind))
        if place is not None:
            group = _group("", skeleton_in(attempt.proposal.script, device_kind))
            runs = max(1, len(attempt.scores_bpb))
            bpb = _score_of(attempt, history)
            pending = bpb is None and attempt.decision is None
            yield Evidence(place, bpb, runs, crashed(attempt), group, attempt.number, is_pending=pending)


def _of_earlier(axes: Sequence[Axis], briefing: Briefing, earlier: Sequence[PastNight]) -> Iterator[Evidence]:
    """Yield what earlier nights say, the most alike last: in this night's noise, each run by its night's likeness."""
    sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
    alike = [(like, past) for past in earlier if (like := likeness(past.night, briefing.night)) >= LEAST_LIKE]
    for like, past in sorted(alike, key=lambda pair: pair[0]):
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        for outline in past.attempts:
            place, attempt = _place(axes, outline.dials), outline.attempt
            if place is not None:
                bpb = None if attempt.val_bpb is None else attempt.val_bpb * scale
                is_crash, group = attempt.status is Status.CRASH, _group(past.night.tag, outline.skeleton)
                yield Evidence(place, bpb, max(1, attempt.seeds) * like, is_crash, group, None)


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
