"""Facts of attempts with runs, for the tests of those who compare them."""

from typing import Any

import charted

from agent.experiment import Ending, Kind, Run, Score, Summary
from agent.view.facts.nouns import AttemptFacts, NightFacts


def a_run(seed: int, val_bpb: float | None, tokens_s: float | None = 1000.0, *, dawn: int = 0) -> Run:
    summary = None if tokens_s is None else Summary(total_tokens_M=300.0 * tokens_s / 1e6)
    return Run(seed, Ending.FINISHED, 0, 300.0, summary, "", Score(val_bpb, 5.0), dawn)


def an_attempt(*runs: Run, number: int = 4, kind: Kind = Kind.KEPT, **facts: Any) -> AttemptFacts:
    """Its score is the mean of the night's runs."""
    scores = [run.val_bpb for run in runs if run.val_bpb is not None and not run.dawn]
    mean_bpb = sum(scores) / len(scores) if scores else None
    of_runs = {"runs": runs, "seeds": sum(not run.dawn for run in runs), "tokens_s": 1000.0}
    return charted.attempt(number, kind, mean_bpb, **of_runs | facts)


def a_night(*attempts: AttemptFacts, **facts: Any) -> NightFacts:
    return charted.night(*attempts, **{"sigma_bpb": 0.01, "protocol": "abc", "device": "a Mac"} | facts)
