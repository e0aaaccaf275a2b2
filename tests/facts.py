"""Facts of attempts with runs, for the tests of those who compare them."""

from typing import Any

import charted

from agent.experiment import Attempt, Ending, Kind, Run, Score, Summary
from agent.records.record import Record


def a_run(seed: int, val_bpb: float | None, tokens_s: float | None = 1000.0, *, dawn: int = 0) -> Run:
    summary = None if tokens_s is None else Summary(total_tokens_M=300.0 * tokens_s / 1e6)
    return Run(seed, Ending.FINISHED, 0, 300.0, summary, "", Score(val_bpb, 5.0), dawn)


def an_attempt(*runs: Run, number: int = 4, kind: Kind = Kind.KEPT, **facts: Any) -> Attempt:
    """Its score is the mean of the night's runs."""
    return charted.attempt(number, kind, None, runs=runs, **facts)


def a_night(*attempts: Attempt, **facts: Any) -> Record:
    return charted.night(*attempts, **{"sigma_bpb": 0.01, "protocol": "abc", "device": "a Mac"} | facts)
