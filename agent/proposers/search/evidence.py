"""Read what this night and earlier ones measured, as places among the dials."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.experiment import Attempt, Ending, History, Status, incumbent
from agent.judging.failures import too_slow
from agent.proposers.briefing import Briefing
from agent.proposers.search.space import Axis, Coordinates
from agent.records.past import PastNight, likeness
from agent.records.shipped import Outline
from agent.script.dials import Value, dials_in, skeleton_in

MOST_EARLIER, MOST_READ = 300, 500  # attempts of earlier nights and of this one that are read, the latest
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
    places = Places(axes)
    found = [*_of_earlier(places, briefing, earlier), *_of_tonight(places, briefing.history, device_kind)]
    group = _group("", skeleton_in(briefing.parent.proposal.script, device_kind))
    return most_telling(found, group, briefing.parent.number)


def most_telling(evidence: Sequence[Evidence], group: str, best: int) -> list[Evidence]:
    """Choose MOST places in their order: the incumbent first, then its own group, then the latest."""
    first = sorted(range(len(evidence)), key=lambda i: (evidence[i].number != best, evidence[i].group != group, -i))
    return [evidence[i] for i in sorted(first[:MOST])]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_tonight(places: "Places", history: History, device_kind: str) -> Iterator[Evidence]:
    best = incumbent(history)
    distant = [best] if best is not None and best.number < len(history) - MOST_READ else []
    for attempt in (*distant, *history[-MOST_READ:]):
        place = places.of(dials_in(attempt.proposal.script, device_kind))
        if place is not None:
            group = _group("", skeleton_in(attempt.proposal.script, device_kind))
            runs = max(1, len(attempt.scores_bpb))
            bpb = _score_of(attempt, history)
            pending = bpb is None and attempt.decision is None
            yield Evidence(place, bpb, runs, crashed(attempt), group, attempt.number, is_pending=pending)


def _of_earlier(places: "Places", briefing: Briefing, earlier: Sequence[PastNight]) -> Iterator[Evidence]:
    """Yield what earlier nights say, the most alike last: in this night's noise, each run by its night's likeness."""
    sigma_bpb = briefing.noise.sigma_bpb if briefing.noise else None
    alike = [(like, past) for past in earlier if (like := likeness(past.night, briefing.night)) >= LEAST_LIKE]
    for like, past, attempts in _most_alike(alike):
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        for outline in attempts:
            place, attempt = places.of(outline.dials), outline.attempt
            if place is not None:
                bpb = None if attempt.val_bpb is None else attempt.val_bpb * scale
                is_crash, group = attempt.status is Status.CRASH, _group(past.night.tag, outline.skeleton)
                yield Evidence(place, bpb, max(1, attempt.seeds) * like, is_crash, group, None)


def _most_alike(nights: Sequence[tuple[float, PastNight]]) -> list[tuple[float, PastNight, Sequence[Outline]]]:
    """Return the most alike nights, the latest among equals, with their first and latest attempts."""
    found: list[tuple[float, PastNight, Sequence[Outline]]] = []
    left = MOST_EARLIER
    for like, past in sorted(nights, key=lambda pair: pair[0])[::-1]:
        attempts = past.attempts if len(past.attempts) <= left else (past.attempts[0], *past.attempts[1 - left :])
        if left > 1:
            found.insert(0, (like, past, attempts))
            left -= len(attempts)
    return found


class Places:
    """Find the places of hundreds of attempts; the same few values of a dial come again and again."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = [(axis, axis.dial.name, axis.dial.value) for axis in axes]
        self._known: list[dict[tuple[type, Value], float | None]] = [{} for _ in axes]

    def of(self, values: Mapping[str, Value]) -> Coordinates | None:
        """Return the place of these dials; None if the script has none of them, or one has no place."""
        if not any(name in values for _, name, _ in self._axes):
            return None
        place = np.empty(len(self._axes))
        for i, ((axis, name, now), known) in enumerate(zip(self._axes, self._known, strict=True)):
            value = values.get(name, now)  # a dial that is not there says nothing: it counts as where it is now
            key = (type(value), value)
            if key not in known:
                known[key] = axis.place(value)
            place[i] = math.nan if (found := known[key]) is None else found
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
