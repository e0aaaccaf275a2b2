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


@dataclass(frozen=True, slots=True)
class Candidate:
    """Hold an attempt that is no evidence yet: to place it among the dials takes long, and most is not read."""

    attempt: Attempt
    group: str
    dials: Mapping[str, Value] | None = None  # of an earlier night's; None: they are in its script
    likeness: float = 1.0  # of its night to this one
    scale: float = 1.0  # of this night's noise to that of its own


def evidence_of(
    axes: Sequence[Axis], briefing: Briefing, device_kind: str, earlier: Sequence[PastNight]
) -> list[Evidence]:
    """Return what is known, the most telling at most, in order of time; the most alike of the earlier nights last."""
    tonight = [
        Candidate(attempt, " " + skeleton_in(attempt.proposal.script, device_kind)) for attempt in briefing.history
    ]
    group = " " + skeleton_in(briefing.parent.proposal.script, device_kind)
    evidence = []
    for candidate in most_telling([*_of_earlier(briefing, earlier), *tonight], group, briefing.parent.number):
        attempt, is_tonight = candidate.attempt, candidate.dials is None
        dials = dials_in(attempt.proposal.script, device_kind) if candidate.dials is None else candidate.dials
        place = _place(axes, dials)
        if place is not None:
            bpb = _score_of(attempt, briefing.history if is_tonight else ())
            evidence.append(
                Evidence(
                    place,
                    None if bpb is None else bpb * candidate.scale,
                    max(1, len(attempt.scores_bpb)) * candidate.likeness,
                    crashed(attempt),
                    candidate.group,
                    attempt.number if is_tonight else None,
                    is_pending=is_tonight and bpb is None and attempt.decision is None,
                )
            )
    return evidence


def most_telling(found: Sequence[Candidate], group: str, best: int) -> list[Candidate]:
    """Choose MOST attempts in their order: tonight's incumbent first, then its own group, then the latest."""
    first = sorted(
        range(len(found)),
        key=lambda i: (found[i].dials is not None or found[i].attempt.number != best, found[i].group != group, -i),
    )
    return [found[i] for i in sorted(first[:MOST])]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_earlier(briefing: Briefing, earlier: Sequence[PastNight]) -> Iterator[Candidate]:
    """Yield the attempts of earlier nights, in this night's noise; each run counts by its night's likeness."""
    sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
    alike = [(like, past) for past in earlier if (like := likeness(past.night, briefing.night)) >= LEAST_LIKE]
    for like, past in sorted(alike, key=lambda pair: pair[0]):
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        for outline in past.attempts:
            group = f"{past.night.tag} {outline.skeleton}"
            yield Candidate(outline.attempt, group, outline.dials, like, scale)


def _place(axes: Sequence[Axis], values: Mapping[str, Value]) -> Coordinates | None:
    """Return the place of these dials; None if the script has none of them, or one has no place."""
    if not any(axis.dial.name in values for axis in axes):
        return None
    # a dial that is not there says nothing: it counts as where it is now
    place = np.array([axis.place(values.get(axis.dial.name, axis.dial.value)) for axis in axes], np.float64)
    return place if np.isfinite(place).all() else None


def _score_of(attempt: Attempt, history: History) -> float | None:
    """Return the score, or the forecast of a run that was stopped early: without it, its place would look unknown."""
    if attempt.val_bpb is not None or attempt.gain_bpb is None or attempt.parent is None or not history:
        return attempt.val_bpb
    parent_bpb = history[attempt.parent].val_bpb
    if parent_bpb is None or not any(run.ending is Ending.HOPELESS for run in attempt.done_runs):
        return None
    return parent_bpb - attempt.gain_bpb
