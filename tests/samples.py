"""Nights that nobody trained, in memory and in journals: what reads, draws and compares nights is tested by them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nights import make_repository, unigram

from agent.clock import utc_now
from agent.experiment import (
    Ask,
    Attempt,
    Audit,
    Decision,
    DryRun,
    Ending,
    Kind,
    Night,
    Noise,
    Outline,
    Proposal,
    Run,
    Score,
    Summary,
    packed,
)
from agent.findings import Confirmation, EditEffect, Findings, Interval
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record, Turned
from agent.script.dials import Value, outline_of
from agent.work import Doing, Work

NIGHT = Night(
    tag="t", branch="refs/heads/experiments/30s-t", script="train_mlx.py", base="b" * 40, budget_s=30.0, seed=7,
    device_kind="cpu", device="a CPU", protocol="p" * 12, data="/data", started="2026-01-02T03:04:05Z",
)  # fmt: skip
RUN = Run(
    *(7, Ending.FINISHED, 0, 31.5, Summary(peak_vram_mb=512.0, num_steps=3), "the end"),
    params=10, peak_bytes=3 << 30,
)  # fmt: skip
SIGMA_BPB = 0.004
DIALS = ("MATRIX_LR", "WARMUP", "DEPTH", "WEIGHT_DECAY", "WINDOW")
PROPOSERS = ("search", "catalogue: smear", "openai:gpt-5")
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
HOSTILE_WORDS = "boom \x1b[2J\x07 \u202e<b>[red]"


SCRIPT = "DEPTH = 4\nWIDTH = 64\n"
PASSED, PEEKS = Audit(4, 0.0, 2.5), Audit(4, 1.0, 2.5, "3 of 4 positions are wrong")
EFFECT = Interval(0.05, 0.01, 0.09)
EDITS = EditEffect(1, EFFECT, 0.01, 2), EditEffect(4, EFFECT, 0.001, 0)
FOUND = Findings(4, 4, 0.21, 0.18, EFFECT, None, EDITS, (), None, None)


# ---- in memory -------------------------------------------------------------------------------------------------------


def a_run(
    seed: int,
    val_bpb: float | None,
    audit: Audit | None = None,
    *,
    params: int = 100,
    tokens_M: float = 0.5,
    **facts: Any,
) -> Run:
    score = Score(val_bpb, 2.0, audit=audit)
    made = Run(
        seed,
        Ending.FINISHED,
        0,
        10.0,
        Summary(training_seconds=10.0, total_tokens_M=tokens_M),
        "",
        score,
        params=params,
    )
    return replace(made, peak_bytes=2**30, **facts)


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
    proposer: str = "search",
    script: str = "",
    merges: int | None = None,
    without: tuple[int, ...] = (),
    **more: Any,
) -> Attempt:
    """An attempt of these runs; without them, of as many equal ones as it has seeds."""
    decided = () if kind is None else (Decision(kind, words, gain_bpb, sure, 10 * number, NIGHT.started),)
    summary = Summary(training_seconds=300.0, peak_vram_mb=512.0 + number % 3, total_tokens_M=300.0 + number % 5 * 30)
    ending = Ending.CRASHED if kind is Kind.CRASHED else Ending.FINISHED
    equal = [
        Run(seed, ending, 0, 300.0, summary, "", Score(val_bpb, 5.0), params=(1 + number % 7) * 10**6)
        for seed in range(seeds)
    ]
    proposal = Proposal(title, "It might help.", proposer, without=without, merges=merges, packed=packed(script))
    facts = {"parent": 0 if number else None, "started": NIGHT.started} | more
    every = tuple(equal if runs is None else runs)
    facts["outline"] = outline_of(script, "cpu")
    return Attempt(number, proposal=proposal, runs=every, decisions=tuple(decisions or decided), **facts)


def revoked(number: int, val_bpb: float, after: int) -> Attempt:
    """An attempt that was kept until another one was decided."""
    kept = Decision(Kind.PROVISIONAL, "lower", 0.01, 0.9, 10 * number, NIGHT.started)
    lost = Decision(Kind.REVOKED, "luck", None, 0.4, 10 * after + 5, NIGHT.started)
    return attempt(number, Kind.REVOKED, val_bpb, "revoked edit", decisions=(kept, lost))


def night(
    *attempts: Attempt, sigma_bpb: float | None = SIGMA_BPB, confirmation: Findings | None = None, **more: Any
) -> Record:
    """The record of a night with these attempts; more: fields of the night or of its record."""
    noise = None if sigma_bpb is None else Noise(sigma_bpb, 3, 0.01)
    made = replace(NIGHT, budget_s=300.0, branch="refs/heads/experiments/5min-t", started=NIGHT.started)
    return changed(Record(made, attempts, noise=noise), confirmation=confirmation, **more)


def changed(record: Record, **more: Any) -> Record:
    """A night with other fields of its own or of its `Night`; confirmation: what it found; turned: by its edits."""
    if "confirmation" in more:
        found = more.pop("confirmation")
        more["confirmations"] = (
            () if found is None else (Confirmation(1, found.best, 4, NIGHT.started, findings=found),)
        )
    if "turned" in more:
        more["attempts"] = with_dials(more.get("attempts", record.attempts), more.pop("turned"))
    own = {name: more.pop(name) for name in [field.name for field in fields(Record)] if name in more}
    return replace(record, night=replace(record.night, **more), **own)


def with_dials(attempts: Sequence[Attempt], turned: Mapping[int, Turned]) -> tuple[Attempt, ...]:
    """The attempts with dials that turned so; attempt 0 has each dial's value before it was turned first."""
    dials: list[dict[str, Value]] = [{}]
    for moves in reversed(turned.values()):
        dials[0] |= {name: before for name, (before, _) in moves.items()}
    for attempt in attempts[1:]:
        after = {name: value for name, (_, value) in turned.get(attempt.number, {}).items()}
        dials.append(dials[attempt.parent or 0] | after)
    return tuple(replace(attempt, outline=Outline(own)) for attempt, own in zip(attempts, dials, strict=True))


def findings(honest: Interval | None, *, best: int, **more: Any) -> Findings:
    """What a confirmation found: it confirmed the best script."""
    made = Findings(best, best, 0.1, 0.09, honest, honest, (), (), None, None)
    return replace(made, **more)


def every_outcome() -> Record:
    """A night of every outcome."""
    asks = (
        Ask(3, "llm:a", NIGHT.started, 30.0, "a", 12000, 3400, 0.12),
        Ask(9, "llm:a", NIGHT.started, 30.0, failure="overloaded"),
    )
    return night(
        attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3),
        attempt(1, Kind.WORSE, 1.22, gain_bpb=-0.02, sure=0.1),
        attempt(2, Kind.KEPT, 1.15, "a wider MLP", gain_bpb=0.05, sure=0.99),
        attempt(3, Kind.PROVISIONAL, 1.11, "a longer warm-up", gain_bpb=0.04, sure=0.9, parent=2, proposer="llm:a"),
        attempt(4, Kind.CRASHED, None),
        revoked(5, 1.09, after=7),
        attempt(6, Kind.QUARANTINED, 0.3),
        attempt(7, Kind.WORSE, 3.5, gain_bpb=-2.4),
        attempt(8, Kind.STOPPED_EARLY, None),
        attempt(9, None, None),
        asks=asks,
        confirmation=findings(Interval(0.08, 0.07, 0.09), best=3),
        turned={
            1: {"DEPTH": (4, 2), "MATRIX_LR": (0.04, 0.3)}, 2: {"DEPTH": (4, 6)}, 4: {"DEPTH": (4, 8)},
            7: {"MATRIX_LR": (0.04, 0.001)},
        },
    )  # fmt: skip


def long_night(size: int, titles: Sequence[str] = ()) -> Record:
    """A night of so many attempts, each an edit of the best before it; the first ones have these titles."""
    rng, best, best_bpb, turned = random.Random("t"), 0, 1.2, {}
    attempts = [attempt(0, Kind.BASELINE, 1.2, "baseline", seeds=3, proposer="you")]
    for number in range(1, size):
        dial, value = DIALS[number % 5], round(0.02 + 0.001 * number, 3)
        turned[number] = {dial: (0.02, value)}
        title = titles[number - 1] if number <= len(titles) else f"{dial} 0.02 → {value} ({number})"
        facts: dict[str, Any] = {"title": title, "proposer": PROPOSERS[number % 3], "parent": best}
        gain_bpb = rng.gauss(-0.004 if number > 60 else -0.002, SIGMA_BPB)
        if number % 17 == 0:
            attempts.append(attempt(number, Kind.CRASHED, **facts))
        elif gain_bpb < SIGMA_BPB / 2:
            attempts.append(attempt(number, Kind.WORSE, best_bpb - gain_bpb, gain_bpb=gain_bpb, sure=0.1, **facts))
        else:
            best, best_bpb = number, best_bpb - gain_bpb
            attempts.append(attempt(number, Kind.KEPT, best_bpb, seeds=2, gain_bpb=gain_bpb, sure=0.99, **facts))
    gain_bpb = 1.2 - best_bpb
    honest = findings(Interval(0.8 * gain_bpb, 0.6 * gain_bpb, gain_bpb), best=best) if best else None
    return night(*attempts, confirmation=honest, turned=turned, device="Apple M3 Max")


# ---- in a journal ----------------------------------------------------------------------------------------------------


def enter(journal: Journal, attempt: Attempt, *decisions: Decision) -> None:
    """Write an attempt into a journal, with these decisions one after another, or its own."""
    journal.add_attempt(attempt.number, attempt.parent, attempt.proposal, "2026-01-02T03:04:05Z")
    for run in attempt.runs:
        journal.end_run(journal.start_run(attempt.number, run.seed, confirmation=run.confirmation), run)
    for decision in decisions or attempt.decisions:
        journal.record_decision(attempt.number, decision)
        journal.settle(attempt.number)


def record_night(place: Place) -> None:
    """Record the night t: an edit is kept, another on top of it revoked later, one crashes, one cheats; a
    confirmation."""
    deeper, wider = "DEPTH = 6\nWIDTH = 64\n", "DEPTH = 6\nWIDTH = 128\n"
    with Journal.create(place.journal("t"), NIGHT) as journal:

        def add(number: int, kind: Kind, title: str, script: str, *runs: Run, **facts: Any) -> None:
            enter(journal, attempt(number, kind, title=title, script=script, runs=runs, **facts))

        add(0, Kind.BASELINE, "baseline", SCRIPT, a_run(0, 1.5), a_run(1, 1.52), a_run(2, 1.48))
        add(1, Kind.KEPT, "DEPTH 4 → 6", deeper, a_run(0, 1.42, PASSED), a_run(1, 1.44), gain_bpb=0.07, sure=0.99)
        lucky = a_run(0, 1.37, PASSED, params=200)
        add(2, Kind.PROVISIONAL, "WIDTH 64 → 128", wider, lucky, parent=1, gain_bpb=0.04, sure=0.9)
        crash = Run(0, Ending.CRASHED, 1, 3.0, None, f"a log\n{HOSTILE_WORDS}")
        add(3, Kind.CRASHED, HOSTILE_WORDS, "DEPTH = 9\n", crash, parent=2, words="exit code 1", proposer="llm:a")
        journal.record_ask(Ask(3, "llm:a", "2026-01-02T04:00:00Z", 5.0, "a", 1000, 50, 0.25))
        journal.record_ask(Ask(3, "llm:a", "2026-01-02T04:00:00Z", 7.0, "a", usd=0.5, failure=HOSTILE_WORDS))
        journal.record_decision(2, Decision(Kind.REVOKED, "revoked: luck", 0.01, 0.5))
        better = a_run(0, 1.31, PASSED, params=90, tokens_M=0.4), a_run(1, 1.29)
        add(4, Kind.KEPT, "both", f"{wider}# both\n", *better, parent=1, gain_bpb=0.11, sure=0.99)
        journal.record_dry_run(4, DryRun(6.0, None))
        words = "audit: 3 of 4 positions are wrong"
        add(5, Kind.FAILED_AUDIT, "peeks", "DEPTH = 7\n", a_run(0, 0.2, PEEKS), parent=4, words=words, gain_bpb=1.0)
        add(6, Kind.CRASHED, "later", "DEPTH = 8\n", Run(0, Ending.SLEPT, None, 20.0, None, ""), parent=4)
        journal.invalidate([6], "the machine slept")
        add(7, Kind.WORSE, "#4 without #1", "A = 1", parent=4, proposer="confirmation", without=(1,))
        for number, scores in ((0, (1.51, 1.49)), (4, (1.32, 1.30)), (7, (1.40, 1.41))):
            for seed, val_bpb in enumerate(scores, 1000):
                confirming = a_run(seed, val_bpb, confirmation=1, holdout=Score(val_bpb + 0.1, 1.0))
                journal.end_run(journal.start_run(number, seed, confirmation=1), confirming)
        journal.put_confirmation(Confirmation(1, 4, 2, "2026-01-02T05:00:00Z", "2026-01-02T06:00:00Z", FOUND))
        journal.record_facts(noise=noise(journal.attempts()))


def record_nights(root: Path, **titles: tuple[str, ...]) -> Place:
    """A repository with the journals of nights: tag → the titles of the edits, of which the first was kept."""
    place = Place.of(make_repository(root, unigram()) / "train_mlx.py")
    for day, (tag, edits) in enumerate(titles.items(), 1):
        night = replace(NIGHT, tag=tag, started=f"2026-01-0{day}T03:04:05Z")
        with Journal.create(place.journal(tag), night) as journal:
            enter(journal, attempt(0, Kind.BASELINE, 1.5, "baseline", seeds=2, script=unigram()))
            for number, title in enumerate(edits, 1):
                kind, script = Kind.KEPT if number == 1 else Kind.WORSE, unigram(SHARPNESS=number / 10)
                facts = {"parent": min(number - 1, 1), "gain_bpb": 0.05, "sure": 0.9}
                enter(journal, attempt(number, kind, 1.4 + number / 100, title, script=script, **facts))
    return place


def record_workers(place: Place, doing: Mapping[str, Doing], tag: str = "t") -> None:
    """A night of which each worker has run attempt 0 once, and does this with an attempt of its own now."""
    options = replace(NIGHT.options, workers=len(doing))
    night = replace(NIGHT, tag=tag, options=options, started="2026-01-03T03:04:05Z")
    with Journal.create(place.journal(tag), night) as journal:
        journal.record_call()
        journal.add_attempt(0, None, Proposal.of(unigram(), "baseline", "", "you"), utc_now())
        for seed, worker in enumerate(doing):
            journal.end_run(journal.start_run(0, seed, worker=worker), a_run(seed, 1.2 + seed / 100))
        journal.record_decision(0, Decision(Kind.BASELINE, "the baseline"))
        journal.settle(0)
        for number, (worker, what) in enumerate(doing.items(), 1):
            journal.add_attempt(number, 0, Proposal.of(unigram(), f"DEPTH 4 → {number}", "why", "search"), utc_now())
            seed = None if what is Doing.DRY_RUN else 0
            if seed is not None:
                journal.start_run(number, seed, worker=worker)
            journal.begin(Work(worker, what, number, utc_now("milliseconds"), seed))
