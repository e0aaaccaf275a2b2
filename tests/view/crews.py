"""Nights of several workers, made up: their journals, as if each idea had taken about five minutes somewhere."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from judged import scored_run
from nights import unigram
from samples import NIGHT

from agent.experiment import Attempt, Decision, Doing, DryRun, Ending, Kind, Proposal, Run, Score, Work
from agent.records.journal import Journal
from agent.records.place import Place

GPUS = tuple(f"gpu {number}" for number in range(16))
OVERTAKEN_AT = 5  # one idea in so many was made from an older script, is better than that, and is merged by the next
MINUTES_S, SCORING_S, BETWEEN_S = 300.0, 14.0, 2.0
SIGMA_BPB = 0.003


def record_crew(
    place: Place, workers: Sequence[str], ideas: int, *, tag: str = "t", began_s: float = 1767323045.0, jobs: int = 0
) -> None:
    """Write the journal of a night whose workers took ideas in turn; so many of them have another run at the end.

    The last of those is scored, the one before it is audited, and the others train.
    """
    rng, night = (
        random.Random(f"{tag} {len(workers)}"),
        replace(NIGHT, tag=tag, budget_s=MINUTES_S, started=at(began_s)),
    )
    free_s = dict.fromkeys(workers, began_s)
    times: list[tuple[str | None, str | None, int]] = []  # began and ended of each run, by its id
    with Journal.create(place.journal(tag), night) as journal:
        journal.record_call(len(workers))

        def run(number: int, seed: int, val_bpb: float) -> None:
            """Record a run on the worker that is free first."""
            worker = min(workers, key=lambda name: free_s[name])
            wall_s = MINUTES_S + rng.uniform(0, 10)
            run_id = journal.start_run(number, seed, worker=worker)
            journal.end_run(run_id, replace(scored_run(seed, val_bpb), wall_s=wall_s, score=Score(val_bpb, SCORING_S)))
            times.append((at(free_s[worker]), at(free_s[worker] + wall_s), run_id))
            free_s[worker] += wall_s + SCORING_S + BETWEEN_S

        _enter(journal, 0, None, "baseline", night.started)
        for seed in range(len(workers) + 1):
            run(0, seed, 1.2 + rng.gauss(0, SIGMA_BPB))
        decide(journal, 0, Kind.BASELINE, None)
        best, best_bpb, earlier, overtaken = 0, 1.2, 0, None
        for number in range(1, ideas + 1):
            title = f"MATRIX_LR 0.02 → 0.0{number:03d}" + (", merged" if overtaken else "")
            parent = earlier if number % OVERTAKEN_AT == 0 else best
            _enter(journal, number, parent, title, at(min(free_s.values())), merges=overtaken)
            gain_bpb = rng.gauss(-0.004, 0.006)
            if overtaken is not None or number % OVERTAKEN_AT == 0:
                gain_bpb = 2 * SIGMA_BPB
            run(number, 0, best_bpb - gain_bpb)
            kept = gain_bpb > SIGMA_BPB
            if kept:
                run(number, 1, best_bpb - gain_bpb + rng.gauss(0, SIGMA_BPB))
            overtaken = number if parent != best else None
            kind = Kind.OVERTAKEN if overtaken else Kind.KEPT if kept else Kind.WORSE
            decide(journal, number, kind, gain_bpb)
            if kept and not overtaken:
                earlier, best, best_bpb = best, number, best_bpb - gain_bpb
        for place_in_line, worker in enumerate(workers[:jobs]):
            _goes_on(journal, ideas + 1 + place_in_line, best, worker, jobs - place_in_line, at(free_s[worker]), times)
    with closing(sqlite3.connect(place.journal(tag))) as database:
        database.execute("UPDATE calls SET began = ?", (at(began_s),))
        database.executemany("UPDATE runs SET began = ?, ended = ? WHERE id = ?", times)
        database.commit()


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def decide(journal: Journal, number: int, kind: Kind, gain_bpb: float | None) -> None:
    side = "below" if gain_bpb and gain_bpb > 0 else "above"
    reason = "the baseline" if gain_bpb is None else f"an estimated {abs(gain_bpb):.6f} {side} its parent"
    journal.record_decision(number, Decision(kind, reason, gain_bpb, None if gain_bpb is None else 0.9))
    journal.settle(number)


def _enter(
    journal: Journal, number: int, parent: int | None, title: str, started: str, merges: int | None = None
) -> Attempt:
    proposal = Proposal(unigram(SHARPNESS=number / 1000), title, "It might be better.", "search", merges=merges)
    journal.add_attempt(number, parent, proposal, started)
    if number:
        journal.record_dry_run(number, DryRun(1.5, None))
    return journal.attempt(number)


def _goes_on(
    journal: Journal, number: int, parent: int, worker: str, rank: int, began: str, times: list[tuple[object, ...]]
) -> None:
    _enter(journal, number, parent, f"WARMUP_FRACTION 0.0 → 0.0{number:03d}, EMBEDDING_LR 0.3 → 0.25", began)
    run_id = journal.start_run(number, 0, worker=worker)
    journal.begin(Work(worker, Doing.TRAINING, number, began, 0))
    ended = None
    if rank < 3:
        score = scored_run(0, 1.1).score if rank == 2 else None
        journal.end_run(run_id, Run(0, Ending.FINISHED, 0, MINUTES_S, None, "", score))
        ended = at(datetime.fromisoformat(began).timestamp() + MINUTES_S)
        journal.begin(Work(worker, Doing.SCORING if rank == 1 else Doing.AUDITING, number, ended, 0))
    times.append((began, ended, run_id))
