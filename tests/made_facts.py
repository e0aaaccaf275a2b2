"""A night's facts, made up: for tests of what is drawn and shown of them."""

import math
import random
from dataclasses import replace
from pathlib import Path

from judged import scored_attempt
from nights import make_repository, unigram
from samples import NIGHT, enter

from agent.experiment import Attempt, Decision, Ending, Kind, Proposal, Run, Score, Status, Summary
from agent.judging.intervals import Interval
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.summary import Share
from agent.view.facts.nouns import AttemptFacts, DawnFacts, DecisionFacts, NightFacts

SIGMA_BPB = 0.004
DIALS = ("MATRIX_LR", "WARMUP", "DEPTH", "WEIGHT_DECAY", "WINDOW")
SOURCES = ("search", "catalogue: smear", "openai:gpt-5")
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quotes\" & 'more' </td></tr>",
    "a\ttab\x1b[31m and a\nline",
    "ten kilobytes " + "x" * 10_000,
    "\u202eright to left \u05d0\u05d1\u05d2",
    "an emoji 🌙 in a title",
    "</script><img src=x onerror=alert(1)>",
)


def made_night(size: int, tag: str = "t", titles: tuple[str, ...] = (), dawn: bool = True) -> NightFacts:
    """A night of so many attempts, each an edit of the best before it; the first ones have these titles."""
    rng, best, best_bpb = random.Random(tag), 0, 1.2
    attempts = [_attempt(0, None, "baseline", best_bpb, "keep", 0.0, rng)]
    for number in range(1, size):
        title = titles[number - 1] if number <= len(titles) else _title(number, rng)
        gain_bpb = rng.gauss(-0.002 - 0.003 * math.log10(1 + number / 50), 0.004)  # ideas become fewer
        crashed = rng.random() < 0.06
        kept = not crashed and gain_bpb > SIGMA_BPB / 2
        status = "crash" if crashed else "keep" if kept else "discard"
        attempts.append(_attempt(number, best, title, best_bpb - gain_bpb, status, gain_bpb, rng))
        if kept:
            best, best_bpb = number, best_bpb - gain_bpb
    if size > 12:
        attempts = _one_revoked(attempts, best)
    return NightFacts(
        tag=tag, branch=f"refs/heads/experiments/5min-{tag}", device="Apple M3 Max", device_kind="metal",
        budget_s=300.0, protocol="p" * 12, started="2026-11-21T21:04:05Z", ended="2026-11-22T06:40:00Z",
        sigma_bpb=SIGMA_BPB, smallest_bpb=1.96 * math.sqrt(2) * SIGMA_BPB, attempts=tuple(attempts), incumbent=best,
        sources=_sources(attempts), dawn=_dawn(attempts, best) if dawn and best else None,
    )  # fmt: skip


def record_nights(root: Path, **titles: tuple[str, ...]) -> Place:
    """A repository with the journals of nights, without a training: tag → the titles of the edits, the first kept."""
    place = Place.of(make_repository(root, unigram()) / "train_mlx.py")
    for at, (tag, edits) in enumerate(titles.items()):
        night = replace(NIGHT, tag=tag, started=f"2026-01-0{1 + at}T03:04:05Z")
        with Journal.create(place.journal(tag), night) as journal:
            enter(journal, scored_attempt(0, 1.5, 1.51, status=Status.KEEP, kind=Kind.BASELINE, script=unigram()))
            for number, title in enumerate(edits, 1):
                script = unigram(SHARPNESS=number / 10)
                run = scored_attempt(number, 1.4 + number / 100).runs
                made = Attempt(number, min(number - 1, 1), Proposal(script, title, "why", "search"), "", runs=run)
                enter(journal, made, Decision(Kind.KEPT if number == 1 else Kind.WORSE, "a reason", 0.05, 0.9))
    return place


def _title(number: int, rng: random.Random) -> str:
    dial = rng.choice(DIALS)
    return f"{dial} {rng.uniform(0.01, 0.1):.3f} → {rng.uniform(0.01, 0.1):.3f} ({number})"


def _attempt(
    number: int, parent: int | None, title: str, bpb: float, status: str, gain_bpb: float, rng: random.Random
) -> AttemptFacts:
    seeds = 3 if number == 0 else 2 if status == "keep" else 1
    crashed = status == "crash"
    runs = tuple(
        Run(
            seed=seed, ending=Ending.CRASHED if crashed else Ending.FINISHED, exit_code=1 if crashed else 0,
            wall_s=300.0, summary=None if crashed else Summary(total_tokens_M=12.3), last_lines="",
            score=Score(None, 14.0, "ValueError: [matmul] 256 by 320") if crashed
            else Score(bpb + rng.gauss(0, SIGMA_BPB), 14.0), began="2026-11-22T01:00:00Z",
        )
        for seed in range(seeds)
    )  # fmt: skip
    kind = "baseline" if number == 0 else {"keep": "kept", "discard": "worse", "crash": "crashed"}[status]
    sure = None if crashed or number == 0 else 1 / (1 + math.exp(-gain_bpb / SIGMA_BPB * 2))
    side = "below" if gain_bpb >= 0 else "above"
    words = "exit code 1: ValueError" if crashed else f"an estimated {abs(gain_bpb):.6f} {side} its parent"
    gain = gain_bpb if sure else None
    decision = DecisionFacts("2026-11-22T01:10:00Z", kind, status, words, gain, sure, number)
    scores = [run.val_bpb for run in runs if run.val_bpb is not None]
    source = "you" if number == 0 else SOURCES[number % 3]
    return AttemptFacts(
        number=number, parent=parent, title=title, hypothesis=f"It might be better, since it was so in #{number}.",
        source=source, status=status, kind=kind, words=words,
        val_bpb=sum(scores) / len(scores) if scores else None, seeds=seeds, gain_bpb=gain_bpb if sure else None,
        sure=sure, memory_gb=1.25 + rng.random(), params=7_900_000 + 1000 * rng.randrange(900), tokens_s=40_000.0
        + rng.gauss(0, 2000), spent_s=314.0 * seeds, asked_s=0.4, usd=0.01 if "gpt" in source else None,
        started=f"2026-11-22T0{number % 10}:00:00Z", commit=f"{number:040x}", without=(),
        dials={} if number == 0 else {DIALS[number % 5]: (0.02, 0.02 + 0.001 * number)}, runs=runs,
        decisions=(decision,),
    )  # fmt: skip


def _one_revoked(attempts: list[AttemptFacts], best: int) -> list[AttemptFacts]:
    """Take back the first keep that is not the best: no other attempt has it as its parent from then on."""
    first = next((one for one in attempts if one.number and one.status == "keep" and one.number != best), None)
    if first is None:
        return attempts
    words = "more seeds say that it brings nothing"
    later = DecisionFacts("2026-11-22T02:00:00Z", "revoked", "discard", words, -0.0004, 0.4, len(attempts))
    taken = replace(
        first, status="discard", kind="revoked", words=words, gain_bpb=-0.0004, sure=0.4,
        decisions=(*first.decisions, later),
    )  # fmt: skip
    return [taken if one.number == first.number else one for one in attempts]


def _sources(attempts: list[AttemptFacts]) -> tuple[Share, ...]:
    mine = {name: [one for one in attempts if one.source == name] for name in SOURCES}
    return tuple(
        Share(
            source=name.partition(":")[0], attempts=len(ones), kept=sum(one.status == "keep" for one in ones),
            gain_bpb=sum(one.gain_bpb or 0 for one in ones if one.status == "keep"),
            hours=sum(one.spent_s for one in ones) / 3600, calls=len(ones), failures=0, tokens_in=None,
            tokens_out=None, usd=sum(one.usd or 0 for one in ones) or None,
        )
        for name, ones in mine.items()
    )  # fmt: skip


def _dawn(attempts: list[AttemptFacts], best: int) -> DawnFacts:
    gain_bpb = (attempts[0].val_bpb or 0) - (attempts[best].val_bpb or 0)
    honest = Interval(0.8 * gain_bpb, 0.6 * gain_bpb, gain_bpb)
    holdout = Interval(0.75 * gain_bpb, 0.4 * gain_bpb, 1.1 * gain_bpb)
    edits = ((best, Interval(0.004, 0.001, 0.007)),)
    return DawnFacts(1, best, best, gain_bpb, 0.9 * gain_bpb, honest, holdout, edits, ())
