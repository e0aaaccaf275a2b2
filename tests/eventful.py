"""A small night with all that may become of an attempt, for the tests of what is shown of a night."""

import dataclasses

from judged import decided, scored_attempt, scored_run
from samples import NIGHT, enter

from agent.experiment import (
    Ask,
    Attempt,
    Audit,
    Dawn,
    Decision,
    DryRun,
    EditEffect,
    Ending,
    Findings,
    Interval,
    Kind,
    Proposal,
    Run,
    Score,
    Status,
)
from agent.experiment import Summary as Told
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place

SCRIPT = "DEPTH = 4\nWIDTH = 64\n"
PASSED, PEEKS = Audit(4, 0.0, 2.5), Audit(4, 1.0, 2.5, "3 of 4 positions are wrong")
EFFECT = Interval(0.05, 0.01, 0.09)
EDITS = EditEffect(1, EFFECT, 0.01, 2), EditEffect(4, EFFECT, 0.001, 0)
FOUND = Findings(4, 4, 0.21, 0.18, EFFECT, None, EDITS, (), None, None)


def edit(number: int, parent: int, title: str, script: str, *runs: Run, source: str = "search") -> Attempt:
    return Attempt(number, parent, Proposal(script, title, "why", source), "", runs=runs)


def run(seed: int, val_bpb: float, audit: Audit | None = None, params: int = 100, tokens_M: float = 0.5) -> Run:
    score = Score(val_bpb, 2.0, audit=audit)
    facts = {"params": params, "peak_bytes": 2**30}
    return Run(seed, Ending.FINISHED, 0, 10.0, Told(total_tokens_M=tokens_M), "", score, **facts)


def fill(place: Place) -> None:
    """A night in which an edit is kept, another on top of it revoked later, one crashes, one cheats; and a dawn."""
    with Journal.create(place.journal("t"), dataclasses.replace(NIGHT, tag="t")) as journal:
        enter(journal, scored_attempt(0, 1.5, 1.52, 1.48, status=Status.KEEP, kind=Kind.BASELINE, script=SCRIPT))
        kept = edit(1, 0, "DEPTH 4 → 6", "DEPTH = 6\nWIDTH = 64\n", run(0, 1.42, PASSED), run(1, 1.44))
        enter(journal, kept, decided(Status.KEEP, "below", 0.07, 0.99))
        lucky = edit(2, 1, "WIDTH 64 → 128", "DEPTH = 6\nWIDTH = 128\n", run(0, 1.37, PASSED, 200))
        enter(journal, lucky, Decision(Kind.PROVISIONAL, "provisional", 0.04, 0.9))
        crash = Run(0, Ending.CRASHED, 1, 3.0, None, "boom")
        enter(journal, edit(3, 2, "boom", "DEPTH = 9\n", crash, source="llm:a"), decided(Status.CRASH, "exit code 1"))
        journal.record_ask(Ask(3, "llm:a", "2026-01-02T04:00:00Z", 5.0, "a", 1000, 50, 0.25))
        journal.record_ask(Ask(3, "llm:a", "2026-01-02T04:00:00Z", 7.0, "a", usd=0.5, failure="no answer"))
        journal.record_decision(2, Decision(Kind.REVOKED, "revoked: luck", 0.01, 0.5))
        better = edit(4, 1, "both", "DEPTH = 6\nWIDTH = 128\n# both\n", run(0, 1.31, PASSED, 90, 0.4), run(1, 1.29))
        enter(journal, better, decided(Status.KEEP, "below", 0.11, 0.99))
        journal.record_dry_run(4, DryRun(6.0, None))
        cheat = edit(5, 4, "peeks", "DEPTH = 7\nWIDTH = 64\n", run(0, 0.2, PEEKS))
        enter(journal, cheat, Decision(Kind.FAILED_AUDIT, "audit: 3 of 4 positions are wrong", 1.0, 1.0))
        slept = Run(0, Ending.SLEPT, None, 20.0, None, "")
        enter(journal, edit(6, 4, "later", "DEPTH = 8\nWIDTH = 64\n", slept), decided(Status.CRASH, "…"))
        journal.make_void([6], "the machine slept")
        asked = Proposal("A = 1", "#4 without #1", "Does it miss it?", "dawn", without=(1,))
        enter(journal, dataclasses.replace(scored_attempt(7, parent=4, dawn=(1.40, 1.41)), proposal=asked))
        for number, scores in ((0, (1.51, 1.49)), (4, (1.32, 1.30))):
            for seed, val_bpb in enumerate(scores, 1000):
                scores = {"score": Score(val_bpb, 2.0), "holdout": Score(val_bpb + 0.1, 1.0)}
                at_dawn = dataclasses.replace(scored_run(seed, val_bpb), **scores)
                journal.end_run(journal.start_run(number, seed, dawn=1), at_dawn)
        journal.put_dawn(Dawn(1, 4, 2, "2026-01-02T05:00:00Z", "2026-01-02T06:00:00Z", FOUND))
        journal.record_facts(noise=noise(journal.attempts()))
