"""A night's facts, made up: for tests of what is drawn and shown of them."""

import math
import random
from dataclasses import asdict, replace
from pathlib import Path

from judged import scored_attempt
from nights import make_repository, unigram
from samples import NIGHT, enter

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
    Status,
    Summary,
    Weights,
)
from agent.judging.findings import Edit, Findings
from agent.judging.intervals import Interval
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record

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


def made_night(size: int, tag: str = "t", titles: tuple[str, ...] = (), dawn: bool = True) -> Record:
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
    asks = tuple(
        Ask(one.number, one.source, one.started, 0.4, usd=0.01 if "gpt" in one.source else None) for one in attempts[1:]
    )
    night = Night(
        tag, f"refs/heads/experiments/5min-{tag}", "train_mlx.py", "", 300.0, 0, "metal", "Apple M3 Max", "p" * 12, "",
        "2026-11-21T21:04:05Z",
    )  # fmt: skip
    return Record(
        night, tuple(attempts), asks, _dawn(attempts, best) if dawn and best else (),
        noise=Noise(SIGMA_BPB, 3, 1.96 * math.sqrt(2) * SIGMA_BPB),
        turned={number: {DIALS[number % 5]: (0.02, 0.02 + 0.001 * number)} for number in range(1, size)},
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
) -> Attempt:
    seeds = 3 if number == 0 else 2 if status == "keep" else 1
    crashed = status == "crash"
    told = Summary(total_tokens_M=12.3 + rng.gauss(0, 0.6), peak_vram_mb=1024 * (1.25 + rng.random()))
    params = 7_900_000 + 1000 * rng.randrange(900)
    runs = tuple(
        Run(
            seed=seed, ending=Ending.CRASHED if crashed else Ending.FINISHED, exit_code=1 if crashed else 0,
            wall_s=300.0, summary=None if crashed else told, last_lines="",
            score=Score(None, 14.0, "ValueError: [matmul] 256 by 320") if crashed
            else Score(bpb + rng.gauss(0, SIGMA_BPB), 14.0), began="2026-11-22T01:00:00Z",
            ended="2026-11-22T06:40:00Z", weights=None if crashed else Weights(params, 4 * params),
        )
        for seed in range(seeds)
    )  # fmt: skip
    kind = Kind.BASELINE if number == 0 else {"keep": Kind.KEPT, "discard": Kind.WORSE, "crash": Kind.CRASHED}[status]
    sure = None if crashed or number == 0 else 1 / (1 + math.exp(-gain_bpb / SIGMA_BPB * 2))
    side = "below" if gain_bpb >= 0 else "above"
    words = "exit code 1: ValueError" if crashed else f"an estimated {abs(gain_bpb):.6f} {side} its parent"
    decision = Decision(kind, words, gain_bpb if sure else None, sure)
    source, why = "you" if number == 0 else SOURCES[number % 3], f"It might be better, since it was so in #{number}."
    return Attempt(
        number, parent, Proposal("", title, why, source), f"2026-11-22T0{number % 10}:00:00Z", f"{number:040x}", runs,
        decision, decisions=(Entry(number, "2026-11-22T01:10:00Z", decision),),
    )  # fmt: skip


def _one_revoked(attempts: list[Attempt], best: int) -> list[Attempt]:
    """Take back the first keep that is not the best: no other attempt has it as its parent from then on."""
    first = next((one for one in attempts if one.number and one.status == "keep" and one.number != best), None)
    if first is None:
        return attempts
    later = Decision(Kind.REVOKED, "more seeds say that it brings nothing", -0.0004, 0.4)
    entries = *first.decisions, Entry(len(attempts), "2026-11-22T02:00:00Z", later)
    taken = replace(first, decision=later, decisions=entries)
    return [taken if one.number == first.number else one for one in attempts]


def _dawn(attempts: list[Attempt], best: int) -> tuple[Dawn, ...]:
    gain_bpb = (attempts[0].val_bpb or 0) - (attempts[best].val_bpb or 0)
    honest = Interval(0.8 * gain_bpb, 0.6 * gain_bpb, gain_bpb)
    holdout = Interval(0.75 * gain_bpb, 0.4 * gain_bpb, 1.1 * gain_bpb)
    edits = (Edit(best, Interval(0.004, 0.001, 0.007), 0.01, 2),)
    found = Findings(best, best, 8, gain_bpb, 0.9 * gain_bpb, honest, holdout, "", None, edits, (), None, None)
    return (Dawn(1, best, 4, "2026-11-22T06:00:00Z", findings=asdict(found)),)
