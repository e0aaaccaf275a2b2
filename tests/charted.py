"""Nights, made up: what is drawn, shown and compared of them needs no training."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from judged import scored_attempt, scored_run
from nights import make_repository, unigram
from samples import NIGHT, enter

from agent.clock import utc_now
from agent.experiment import (
    Ask,
    Attempt,
    Dawn,
    Decision,
    Doing,
    Ending,
    Findings,
    Interval,
    Kind,
    Noise,
    Proposal,
    Run,
    Score,
    Status,
    Summary,
    Work,
)
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record

STARTED = "2026-01-02T03:04:05Z"
SIGMA_BPB = 0.004
DIALS = ("MATRIX_LR", "WARMUP", "DEPTH", "WEIGHT_DECAY", "WINDOW")
SOURCES = ("search", "catalogue: smear", "openai:gpt-5")
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quotes\" & 'more' </td></tr></text></svg><svg onload=alert(1)>",
    "a\ttab\x1b[31m and a\nline\r\nend \x00\x07",
    "ten kilobytes " + "x" * 10_000,
    "\u202eright to left \u05d0\u05d1\u05d2",
    "an emoji 🌙 in a title",
    "</script><img src=x onerror=alert(1)>",
    "var(--kept) {{datum}} ${1+1} http://x.invalid/#a",
    "half \ud800 of a pair",
)


def a_run(seed: int, val_bpb: float | None, *, dawn: int = 0) -> Run:
    return Run(seed, Ending.FINISHED, 0, 300.0, Summary(total_tokens_M=0.3), "", Score(val_bpb, 5.0), dawn)


def attempt(
    number: int,
    kind: Kind | None,
    val_bpb: float | None = None,
    title: str = "title",
    *,
    seeds: int = 1,
    words: str = "a reason",
    gain_bpb: float | None = None,
    sure: float | None = None,
    runs: Sequence[Run] | None = None,
    decisions: Sequence[Decision] = (),
    source: str = "search",
    merges: int | None = None,
    without: tuple[int, ...] = (),
    **more: Any,
) -> Attempt:
    """An attempt of these runs; without them, of as many equal ones as it has seeds."""
    decided = () if kind is None else (Decision(kind, words, gain_bpb, sure, 10 * number, STARTED),)
    summary = Summary(peak_vram_mb=512.0 + number % 3, total_tokens_M=300.0 + number % 5 * 30)
    ending = Ending.CRASHED if kind is Kind.CRASHED else Ending.FINISHED
    equal = [
        Run(seed, ending, 0, 300.0, summary, "", Score(val_bpb, 5.0), params=(1 + number % 7) * 10**6)
        for seed in range(seeds)
    ]
    proposal = Proposal("", title, "It might help.", source, without=without, merges=merges)
    facts = {"parent": 0 if number else None, "started": STARTED} | more
    every = tuple(equal if runs is None else runs)
    return Attempt(number, proposal=proposal, runs=every, decisions=tuple(decisions or decided), **facts)


def an_attempt(*runs: Run, number: int = 4, kind: Kind = Kind.KEPT, **facts: Any) -> Attempt:
    """Its score is the mean of the night's runs."""
    return attempt(number, kind, runs=runs, **facts)


def revoked(number: int, val_bpb: float, after: int) -> Attempt:
    """An attempt that was kept until another one was decided."""
    kept = Decision(Kind.PROVISIONAL, "lower", 0.01, 0.9, 10 * number, STARTED)
    lost = Decision(Kind.REVOKED, "luck", None, 0.4, 10 * after + 5, STARTED)
    return attempt(number, Kind.REVOKED, val_bpb, "revoked edit", decisions=(kept, lost))


def night(*attempts: Attempt, sigma_bpb: float | None = SIGMA_BPB, dawn: Findings | None = None, **more: Any) -> Record:
    """The record of a night with these attempts; more: fields of the night or of its record."""
    noise = None if sigma_bpb is None else Noise(sigma_bpb, 3, 0.01)
    made = replace(NIGHT, budget_s=300.0, branch="refs/heads/experiments/5min-t", started=STARTED)
    return changed(Record(made, attempts, noise=noise), dawn=dawn, **more)


def changed(record: Record, **more: Any) -> Record:
    """A night with other fields of its own or of its `Night`; dawn: what one has found, or None."""
    if "dawn" in more:
        found = more.pop("dawn")
        more["dawns"] = () if found is None else (Dawn(1, found.champion, 4, STARTED, findings=found),)
    own = {name: more.pop(name) for name in [field.name for field in fields(Record)] if name in more}
    return replace(record, night=replace(record.night, **more), **own)


def findings(honest: Interval | None, *, champion: int, **more: Any) -> Findings:
    """What a dawn found: it confirmed the champion."""
    made = Findings(champion, champion, 0.1, 0.09, honest, honest, (), (), None, None)
    return replace(made, **more)


def every_outcome() -> Record:
    """A night of every outcome."""
    asks = Ask(3, "llm:a", STARTED, 30.0, "a", 12000, 3400, 0.12), Ask(9, "llm:a", STARTED, 30.0, failure="overloaded")
    return night(
        attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3),
        attempt(1, Kind.WORSE, 1.22, gain_bpb=-0.02, sure=0.1),
        attempt(2, Kind.KEPT, 1.15, "a wider MLP", gain_bpb=0.05, sure=0.99),
        attempt(3, Kind.PROVISIONAL, 1.11, "a longer warm-up", gain_bpb=0.04, sure=0.9, parent=2, source="llm:a"),
        attempt(4, Kind.CRASHED, None),
        revoked(5, 1.09, after=7),
        attempt(6, Kind.QUARANTINED, 0.3),
        attempt(7, Kind.WORSE, 3.5, gain_bpb=-2.4),
        attempt(8, Kind.STOPPED_EARLY, None),
        attempt(9, None, None),
        asks=asks,
        dawn=findings(Interval(0.08, 0.07, 0.09), champion=3),
        turned={
            1: {"DEPTH": (4, 2), "MATRIX_LR": (0.04, 0.3)}, 2: {"DEPTH": (4, 6)}, 4: {"DEPTH": (4, 8)},
            7: {"MATRIX_LR": (0.04, 0.001)},
        },
    )  # fmt: skip


def long_night(size: int, titles: Sequence[str] = ()) -> Record:
    """A night of so many attempts, each an edit of the best before it; the first ones have these titles."""
    rng, best, best_bpb, turned = random.Random("t"), 0, 1.2, {}
    attempts = [attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3, source="you")]
    for number in range(1, size):
        dial, gain_bpb = DIALS[number % 5], rng.gauss(-0.004 if number > 60 else -0.002, SIGMA_BPB)
        turned[number] = {dial: (0.02, round(0.02 + 0.001 * number, 3))}
        title = titles[number - 1] if number <= len(titles) else f"{dial} 0.02 → {turned[number][dial][1]} ({number})"
        kind = Kind.CRASHED if rng.random() < 0.06 else Kind.KEPT if gain_bpb > SIGMA_BPB / 2 else Kind.WORSE
        facts: dict[str, Any] = {"source": SOURCES[number % 3], "parent": best}
        if kind is not Kind.CRASHED:
            side = "below" if gain_bpb >= 0 else "above"
            facts |= {"gain_bpb": gain_bpb, "sure": max(0.01, min(0.99, 0.5 + 60 * gain_bpb))}
            facts["words"] = f"an estimated {abs(gain_bpb):.6f} {side} its parent"
        score = None if kind is Kind.CRASHED else best_bpb - gain_bpb
        attempts.append(attempt(number, kind, score, title, seeds=2 if kind is Kind.KEPT else 1, **facts))
        if kind is Kind.KEPT:
            best, best_bpb = number, best_bpb - gain_bpb
    gain_bpb = 1.2 - best_bpb
    honest = findings(Interval(0.8 * gain_bpb, 0.6 * gain_bpb, gain_bpb), champion=best) if best else None
    return night(*attempts, dawn=honest, turned=turned, device="Apple M3 Max")


def record_nights(root: Path, **titles: tuple[str, ...]) -> Place:
    """A repository with the journals of nights, without a training: tag → the titles of the edits, the first kept."""
    place = Place.of(make_repository(root, unigram()) / "train_mlx.py")
    for at, (tag, edits) in enumerate(titles.items()):
        with Journal.create(place.journal(tag), replace(NIGHT, tag=tag, started=f"2026-01-0{1 + at}T03:04:05Z")) as it:
            enter(it, scored_attempt(0, 1.5, 1.51, status=Status.KEEP, kind=Kind.BASELINE, script=unigram()))
            for number, title in enumerate(edits, 1):
                proposal = Proposal(unigram(SHARPNESS=number / 10), title, "why", "search")
                runs = scored_attempt(number, 1.4 + number / 100).runs
                decision = Decision(Kind.KEPT if number == 1 else Kind.WORSE, "a reason", 0.05, 0.9)
                enter(it, Attempt(number, min(number - 1, 1), proposal, "", runs=runs), decision)
    return place


def record_crew(place: Place, doing: Mapping[str, Doing]) -> None:
    """A night of which each worker has run attempt 0 once, and does this with an attempt of its own now."""
    terms = replace(NIGHT.terms, workers=len(doing))
    with Journal.create(place.journal("t"), replace(NIGHT, terms=terms)) as journal:
        journal.record_call()
        journal.add_attempt(0, None, Proposal(unigram(), "baseline", "", "you"), utc_now())
        for seed, worker in enumerate(doing):
            journal.end_run(journal.start_run(0, seed, worker=worker), scored_run(seed, 1.2 + seed / 100))
        journal.record_decision(0, Decision(Kind.BASELINE, "the baseline"))
        journal.settle(0)
        for number, (worker, what) in enumerate(doing.items(), 1):
            journal.add_attempt(number, 0, Proposal(unigram(), f"DEPTH 4 → {number}", "why", "search"), utc_now())
            journal.start_run(number, 0, worker=worker)
            journal.begin(Work(worker, what, number, utc_now("milliseconds"), 0))
