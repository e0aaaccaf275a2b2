"""Scripts that are kept one after the other, and what a night remembers of them."""

import dataclasses
from collections.abc import Sequence

from nights import Grounds, unigram

from agent.records.journal import Journal

START = unigram(JITTER=0.05, SHARPNESS=0.5)
SHARPER = unigram(JITTER=0.05, SHARPNESS=0.6)
LUCKY = SHARPER.replace("default_rng(options.seed)", "default_rng(options.seed + 10)")  # other luck, and nothing else
BEST = LUCKY.replace("SHARPNESS = 0.6", "SHARPNESS = 0.8").replace("SHARE = 0.25", "SHARE = 1.0")


def remember(grounds: Grounds, number: int, aboves: Sequence[float]) -> None:
    """What was measured of this attempt at dawn before."""
    with Journal.resume(grounds.folder("t") / "journal.sqlite") as journal:
        attempt = journal.attempt(number)
        first = attempt.done_runs[0]
        assert attempt.val_bpb is not None
        assert first.score is not None
        for seed, above in enumerate(aboves, 1000):
            score = dataclasses.replace(first.score, val_bpb=attempt.val_bpb + above)
            held = dataclasses.replace(score, val_bpb=attempt.val_bpb + above + 0.2)
            run = dataclasses.replace(first, seed=seed, score=score, holdout=held)
            journal.end_run(journal.start_run(number, seed, dawn=1), run)
