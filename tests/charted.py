"""Facts of nights, made up or shipped, for tests of charts and of what compares them."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.experiment import Kind
from agent.judging.intervals import Interval
from agent.records.place import Place
from agent.records.summary import Share
from agent.script.dials import Value
from agent.view.facts.nouns import AttemptFacts, DawnFacts, DecisionFacts, NightFacts
from agent.view.facts.read import night_facts

SVG = "http://www.w3.org/2000/svg"
HERE = Place.of(Path(__file__).parents[1] / "train_mlx.py")
STARTED = "2026-01-02T03:04:05Z"
DIALS: dict[str, tuple[Value, tuple[Value, ...]]] = {
    "MATRIX_LR": (0.04, (0.001, 0.01, 0.08, 0.3)),
    "DEPTH": (4, (2, 3, 6)),
    "WINDOW_PATTERN": ("SSSL", ("L", "SL")),
    "COMPILE": (False, (True,)),
    "SOFTCAP": (15.0, (12.5, 20.0)),
}


def attempt(number: int, kind: Kind | None, val_bpb: float | None, title: str = "title", **more: Any) -> AttemptFacts:
    status = kind.status if kind is not None else None
    words = None if kind is None else "a reason"
    decided = [] if kind is None else [DecisionFacts(STARTED, kind, status, "a reason", None, None, order=10 * number)]
    made = AttemptFacts(
        number=number, parent=0 if number else None, title=title, hypothesis="why", source="search", status=status,
        kind=kind, words=words, val_bpb=val_bpb, seeds=1, gain_bpb=None, sure=None, memory_gb=0.5 + number % 3,
        params=(1 + number % 7) * 10**6, tokens_s=1000.0 + number % 5 * 100, spent_s=300.0, asked_s=5.0, usd=None,
        started=STARTED, commit=None, without=(), dials={}, runs=(), decisions=tuple(decided),
    )  # fmt: skip
    return replace(made, **more)


def revoked(number: int, val_bpb: float, after: int) -> AttemptFacts:
    """An attempt that was kept until another one was decided."""
    kept = DecisionFacts(STARTED, Kind.PROVISIONAL, Kind.PROVISIONAL.status, "lower", 0.01, 0.9, order=10 * number)
    lost = DecisionFacts(STARTED, Kind.REVOKED, Kind.REVOKED.status, "luck", None, 0.4, order=10 * after + 5)
    return attempt(number, Kind.REVOKED, val_bpb, "revoked edit", decisions=(kept, lost))


def night(*attempts: AttemptFacts, **more: Any) -> NightFacts:
    incumbent = max((one.number for one in attempts if one.status == "keep"), default=None)
    made = NightFacts(
        tag="t", branch="experiments/5min-t", device="a CPU", device_kind="cpu", budget_s=300.0, protocol="p" * 12,
        started=STARTED, ended=None, sigma_bpb=0.004, smallest_bpb=0.01, attempts=attempts, incumbent=incumbent,
        sources=(), dawn=None,
    )  # fmt: skip
    return replace(made, **more)


def every_outcome() -> NightFacts:
    """A night of every outcome."""
    dawn = DawnFacts(1, 3, 3, 0.1, 0.09, Interval(0.08, 0.07, 0.09), None, (), ())
    sources = (
        Share("search", 6, 1, 0.04, 0.5, 0, 0, None, None, None),
        Share("llm: a model", 2, 1, 0.05, 0.2, 3, 1, 12000, 3400, 0.12),
    )
    return night(
        attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3),
        attempt(1, Kind.WORSE, 1.22, gain_bpb=-0.02, sure=0.1, dials={"DEPTH": (4, 2), "MATRIX_LR": (0.04, 0.3)}),
        attempt(2, Kind.KEPT, 1.15, "a wider MLP", gain_bpb=0.05, sure=0.99, dials={"DEPTH": (4, 6)}),
        attempt(3, Kind.PROVISIONAL, 1.11, "a longer warm-up", gain_bpb=0.04, sure=0.9, parent=2),
        attempt(4, Kind.CRASHED, None, dials={"DEPTH": (4, 8)}),
        revoked(5, 1.09, after=7),
        attempt(6, Kind.QUARANTINED, 0.3),
        attempt(7, Kind.WORSE, 3.5, gain_bpb=-2.4, dials={"MATRIX_LR": (0.04, 0.001)}),
        attempt(8, Kind.STOPPED_EARLY, None),
        attempt(9, None, None),
        sources=sources,
        dawn=dawn,
    )  # fmt: skip


def long_night(size: int) -> NightFacts:
    """A night whose scores fall, with a kept edit in a hundred and a crash in twenty."""
    rng = random.Random("long")
    best, attempts = 1.2, [attempt(0, Kind.BASELINE, 1.2, "baseline")]
    for number in range(1, size):
        moved = {name: (start, rng.choice(to)) for name, (start, to) in DIALS.items() if rng.random() < 0.4}
        gain, draw = -abs(rng.gauss(0, 0.01)), rng.random()
        if draw < 0.05:
            attempts.append(attempt(number, Kind.CRASHED, None, dials=moved))
            continue
        if draw < 0.06:
            gain = (best - 1) * 0.05
            best -= gain
        kind = Kind.KEPT if gain > 0 else Kind.WORSE
        bpb = best if gain > 0 else best - gain + (rng.random() if rng.random() < 0.02 else 0)
        attempts.append(attempt(number, kind, bpb, f"DEPTH 8 → {number}", gain_bpb=gain, sure=0.9, dials=moved))
    return night(*attempts)


def shipped(tag: str) -> NightFacts:
    """Return the facts of a night that came with the repository."""
    return night_facts(HERE, tag)
