"""Lay a night out as trackers of experiments have it: a run an attempt, its dials as hyperparameters, its curves."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.records.place import Place
from agent.script.dials import Value
from agent.view.export.bar import tracked
from agent.view.export.rows import settings
from agent.view.facts.nouns import AttemptFacts, NightFacts, RunFacts
from agent.view.facts.read import curve

PARTS = 1000  # of the budget: trackers number the points of a curve, and a step is a thousandth
WORDS, FACTS = ("title", "source", "status", "kind"), ("parent", "seeds", "started", "commit")
METRICS = ("val_bpb", "gain_bpb", "sure", "memory_gb", "params", "tokens_s", "spent_s")


@dataclass(frozen=True, slots=True)
class Point:
    """Hold one point of a time series."""

    step: int
    at_s: float  # seconds since 1970
    value: float


@dataclass(frozen=True, slots=True)
class Session:
    """Hold one attempt, as a tracker has it."""

    name: str
    words: dict[str, Value]  # what it was, and what became of it
    facts: dict[str, Value]
    dials: dict[str, Value]  # those that the night has turned
    curves: Mapping[str, tuple[Point, ...]]  # by name: the training loss with each seed
    metrics: Mapping[str, float]  # at the end
    ended_s: float  # seconds since 1970


def sessions_of(place: Place, nights: Sequence[NightFacts]) -> Iterator[tuple[NightFacts, Session]]:
    """Yield each night with each of its attempts; show on a terminal how far that is."""
    dials = {night.tag: settings(night) for night in nights}
    every = [(night, attempt) for night in nights for attempt in night.attempts]
    for night, attempt in tracked(every, "writing attempts"):
        yield night, session(place, night, attempt, dials[night.tag][attempt.number])


def session(place: Place, night: NightFacts, attempt: AttemptFacts, dials: Mapping[str, Value]) -> Session:
    """Return an attempt with its curves, as far as their logs are here."""
    curves = {f"loss/seed{run.seed}": _points(place, night, attempt, run) for run in attempt.runs if not run.dawn}
    known = {name: getattr(attempt, name) for name in METRICS} | _of_dawn(attempt)
    ends = [_began_s(run, attempt) + run.train_s + run.scoring_s for run in attempt.runs]
    return Session(
        name=f"{attempt.number:04d}",
        words={name: getattr(attempt, name) for name in WORDS},
        facts={name: getattr(attempt, name) for name in FACTS} | {"night": night.tag, "device": night.device},
        dials=dict(dials),
        curves={name: points for name, points in curves.items() if points},
        metrics={name: float(value) for name, value in known.items() if value is not None},
        ended_s=max(ends, default=_seconds(attempt.started)),
    )


def _of_dawn(attempt: AttemptFacts) -> dict[str, float]:
    runs = [run for run in attempt.runs if run.dawn]
    scores = {
        "dawn_bpb": [run.val_bpb for run in runs if run.val_bpb is not None],
        "holdout_bpb": [run.holdout_bpb for run in runs if run.holdout_bpb is not None],
    }
    return {name: statistics.fmean(values) for name, values in scores.items() if values}


def _points(place: Place, night: NightFacts, attempt: AttemptFacts, run: RunFacts) -> tuple[Point, ...]:
    began_s = _began_s(run, attempt)
    return tuple(
        Point(round(PARTS * fraction), began_s + fraction * night.budget_s, loss)
        for fraction, loss in curve(place, night.tag, attempt.number, run.seed)
    )


def _began_s(run: RunFacts, attempt: AttemptFacts) -> float:
    return _seconds(run.began or attempt.started)


def _seconds(at: str) -> float:
    """Return seconds since 1970; 0 for a text that is no time."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0
