"""Read what this night and earlier ones measured, as places among the dials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.experiment import Attempt, Ending, History, Status
from agent.judging.failures import too_slow
from agent.proposers.briefing import Briefing
from agent.proposers.search.space import Axis, Coordinates
from agent.records.record import Record, likeness
from agent.script.dials import Value, dials_in, skeleton_in

MOST = 300  # attempts that the model looks at, the latest, which bounds a proposal's time


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Hold an attempt as a place among the dials; scores are compared only within a group."""

    place: Coordinates
    bpb: float | None  # its score; the forecast of a run that was ended early; None where there is neither
    runs: float  # of tonight's that it is worth
    crashed: bool  # or overran: both happen beyond some edge among the dials
    group: str
    is_tonight: bool


def evidence_of(
    axes: Sequence[Axis], briefing: Briefing, device_kind: str, earlier: Sequence[Record]
) -> list[Evidence]:
    """Return what is known in order of time: tonight's latest attempts, before them the most alike of earlier ones."""
    tonight = [*_of_tonight(axes, briefing, device_kind)]
    return [*_of_earlier(axes, briefing, earlier, MOST - len(tonight)), *tonight]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_tonight(axes: Sequence[Axis], briefing: Briefing, device_kind: str) -> Iterator[Evidence]:
    for attempt in briefing.history[-MOST:]:
        script, runs = attempt.proposal.script, max(1, len(attempt.scores_bpb))
        place = _place(axes, dials_in(script, device_kind))
        if place is not None:
            group = f" {skeleton_in(script, device_kind)}"
            yield Evidence(place, _score_of(attempt, briefing.history), runs, crashed(attempt), group, is_tonight=True)


def _of_earlier(axes: Sequence[Axis], briefing: Briefing, earlier: Sequence[Record], most: int) -> Iterator[Evidence]:
    """Yield the attempts of earlier nights, in this night's noise; each run counts by its night's likeness."""
    sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
    alike = sorted(((likeness(past.night, briefing.night), past) for past in earlier), key=lambda pair: pair[0])
    told = [
        (like, past, *pair) for like, past in alike if like for pair in zip(past.attempts, past.outlines, strict=True)
    ]
    for like, past, attempt, outline in told[max(0, len(told) - most) :]:
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        place = _place(axes, outline.dials)
        if place is not None:
            bpb = None if attempt.val_bpb is None else attempt.val_bpb * scale
            runs, group = max(1, len(attempt.scores_bpb)) * like, f"{past.night.tag} {outline.skeleton}"
            yield Evidence(place, bpb, runs, crashed(attempt), group, is_tonight=False)


def _place(axes: Sequence[Axis], values: Mapping[str, Value]) -> Coordinates | None:
    """Return the place of these dials; None if the script has none of them, or one has no place."""
    if not any(axis.dial.name in values for axis in axes):
        return None
    # a dial that is not there says nothing: it counts as where it is now
    place = np.array([axis.place(values.get(axis.dial.name, axis.dial.value)) for axis in axes], np.float64)
    return place if np.isfinite(place).all() else None


def _score_of(attempt: Attempt, history: History) -> float | None:
    """Return the score, or the forecast of a run that was stopped early: without it, its place would look unknown."""
    if attempt.val_bpb is not None or attempt.gain_bpb is None or attempt.parent is None:
        return attempt.val_bpb
    parent_bpb = history[attempt.parent].val_bpb
    if parent_bpb is None or not any(run.ending is Ending.HOPELESS for run in attempt.done_runs):
        return None
    return parent_bpb - attempt.gain_bpb
