"""Records of nights, made up or shipped, for tests of charts and of what compares them."""

import random
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from agent.experiment import (
    Ask,
    Attempt,
    Dawn,
    Decision,
    Ending,
    Entry,
    Kind,
    Night,
    Noise,
    Proposal,
    Run,
    Score,
    Summary,
    Weights,
)
from agent.judging.findings import Findings
from agent.judging.intervals import Interval
from agent.records.place import Place
from agent.records.reading import read_night
from agent.records.record import Record, Turned
from agent.script.dials import Value

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


def attempt(
    number: int,
    kind: Kind | None,
    val_bpb: float | None,
    title: str = "title",
    *,
    seeds: int = 1,
    words: str = "a reason",
    gain_bpb: float | None = None,
    sure: float | None = None,
    dials: Turned | None = None,
    runs: Sequence[Run] | None = None,
    decisions: Sequence[Entry] = (),
    asked_s: float = 0.0,
    source: str = "search",
    merges: int | None = None,
    without: tuple[int, ...] = (),
    costs: tuple[float | None, float | None, int] | None = None,
    **more: Any,
) -> Attempt:
    """An attempt whose runs all have this score; `night` reads its dials and the time of its question.

    costs: memory in GiB, tokens a second and parameters.
    """
    decision = None if kind is None else Decision(kind, words, gain_bpb, sure)
    decided = [] if decision is None else [Entry(10 * number, STARTED, decision)]
    memory_gb, tokens_s, params = costs or (0.5 + number % 3, 1000.0 + number % 5 * 100, (1 + number % 7) * 10**6)
    told = Summary(
        peak_vram_mb=None if memory_gb is None else 1024 * memory_gb,
        total_tokens_M=None if tokens_s is None else tokens_s * 300 / 1e6,
    )
    weights = Weights(params, 0)
    score, ending = Score(val_bpb, 0.0), Ending.CRASHED if kind is Kind.CRASHED else Ending.FINISHED
    equal = [Run(seed, ending, 0, 300.0, told, "", score, weights=weights) for seed in range(seeds)]
    proposal = Proposal("", title, "why", source, without=without, merges=merges)
    facts = {"parent": 0 if number else None, "started": STARTED, "decision": decision} | more
    made = Attempt(
        number, proposal=proposal, runs=tuple(equal if runs is None else runs), decisions=tuple(decisions or decided),
        **facts,
    )  # fmt: skip
    made.__dict__.update(dials=dials or {}, asked_s=asked_s)  # which no attempt holds
    return made


def revoked(number: int, val_bpb: float, after: int) -> Attempt:
    """An attempt that was kept until another one was decided."""
    kept = Entry(10 * number, STARTED, Decision(Kind.PROVISIONAL, "lower", 0.01, 0.9))
    lost = Entry(10 * after + 5, STARTED, Decision(Kind.REVOKED, "luck", None, 0.4))
    return attempt(number, Kind.REVOKED, val_bpb, "revoked edit", decisions=(kept, lost))


def night(*attempts: Attempt, sigma_bpb: float | None = 0.004, dawn: Findings | None = None, **more: Any) -> Record:
    """The record of a night with these attempts; more: fields of the night or of its record."""
    of_record = {field.name for field in fields(Record)}
    facts = {name: value for name, value in more.items() if name not in of_record}
    made = Night(
        **{"tag": "t", "branch": "refs/heads/experiments/5min-t", "script": "train_mlx.py", "base": "", "seed": 0,
           "device": "a CPU", "device_kind": "cpu", "budget_s": 300.0, "protocol": "p" * 12, "data": "",
           "started": STARTED} | facts
    )  # fmt: skip
    asks = tuple(
        Ask(one.number, one.source, at(one.started, -one.__dict__["asked_s"]), one.__dict__["asked_s"])
        for one in attempts if one.__dict__.get("asked_s")
    )  # fmt: skip
    record = Record(
        made, attempts, asks, noise=None if sigma_bpb is None else Noise(sigma_bpb, 3, 0.01),
        dawns=() if dawn is None else (Dawn(1, dawn.champion, 4, STARTED, findings=asdict(dawn)),),
        turned={one.number: one.__dict__.get("dials", {}) for one in attempts},
    )  # fmt: skip
    return replace(record, **{name: value for name, value in more.items() if name in of_record})


def at(moment: str, later_s: float) -> str:
    return (datetime.fromisoformat(moment) + timedelta(seconds=later_s)).isoformat()


def findings(honest: Interval | None, holdout: Interval | None = None, *, champion: int, **more: Any) -> Findings:
    """What a dawn found: it confirmed the champion."""
    made = Findings(champion, champion, 8, 0.1, 0.09, honest, holdout, "", None, (), (), None, None)
    return replace(made, **more)


def every_outcome() -> Record:
    """A night of every outcome."""
    asks = (
        Ask(3, "llm:a", STARTED, 30.0, "a model", 12000, 3400, 0.12),
        Ask(9, "llm:a", STARTED, 30.0, failure="overloaded"),
    )
    return night(
        attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3),
        attempt(1, Kind.WORSE, 1.22, gain_bpb=-0.02, sure=0.1, dials={"DEPTH": (4, 2), "MATRIX_LR": (0.04, 0.3)}),
        attempt(2, Kind.KEPT, 1.15, "a wider MLP", gain_bpb=0.05, sure=0.99, dials={"DEPTH": (4, 6)}),
        attempt(3, Kind.PROVISIONAL, 1.11, "a longer warm-up", gain_bpb=0.04, sure=0.9, parent=2, source="llm:a"),
        attempt(4, Kind.CRASHED, None, dials={"DEPTH": (4, 8)}),
        revoked(5, 1.09, after=7),
        attempt(6, Kind.QUARANTINED, 0.3),
        attempt(7, Kind.WORSE, 3.5, gain_bpb=-2.4, dials={"MATRIX_LR": (0.04, 0.001)}),
        attempt(8, Kind.STOPPED_EARLY, None),
        attempt(9, None, None),
        asks=asks,
        dawn=findings(Interval(0.08, 0.07, 0.09), champion=3),
    )  # fmt: skip


def long_night(size: int) -> Record:
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


def shipped(tag: str) -> Record:
    """Return the facts of a night that came with the repository."""
    return read_night(HERE, tag)


def changed(record: Record, **more: Any) -> Record:
    """A night with other fields of its own, of its `Night` or of its noise; dawn: what one has found, or None."""
    if "dawn" in more:
        found = more.pop("dawn")
        more["dawns"] = () if found is None else (Dawn(1, found.champion, 4, STARTED, findings=asdict(found)),)
    of_noise = {name: more.pop(name) for name in ("sigma_bpb", "doubt") if name in more}
    of_record = {name: more.pop(name) for name in [field.name for field in fields(Record)] if name in more}
    if of_noise.get("sigma_bpb", 0) is None:
        of_record["noise"] = None
    elif of_noise and record.noise is not None:
        of_record["noise"] = replace(record.noise, **of_noise)
    return replace(record, night=replace(record.night, **more), **of_record)


def renamed(attempt: Attempt, **words: Any) -> Attempt:
    """An attempt whose proposal has other words."""
    return replace(attempt, proposal=replace(attempt.proposal, **words))
