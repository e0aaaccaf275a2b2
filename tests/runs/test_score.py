"""Time and size of weights limit a scoring process, which runs the script's own code."""

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from nights import scripted_context, unigram
from samples import NIGHT

from agent.errors import MachineError
from agent.experiment import Attempt, Ending, Run, Score
from agent.runs import score as scoring
from agent.runs.fixed import protocol
from agent.runs.jobs import Measure
from agent.runs.runner import WEIGHTS
from agent.runs.score import (
    LEAST_LIMIT_S,
    Rows,
    most_weights_bytes,
    scoring_limit_s,
    too_heavy,
    usual_scoring_s,
)

MB = 1_000_000


def first(*score_s: float, weights_bytes: int | None = 5 * MB) -> tuple[Attempt]:
    """Return a night whose attempt 0 took this long to score."""
    runs = tuple(
        Run(seed, Ending.FINISHED, 0, 310.0, None, "", Score(1.0, seconds), weights_bytes=weights_bytes)
        for seed, seconds in enumerate(score_s)
    )
    return (Attempt(0, None, None, "", runs=runs),)  # type: ignore[arg-type]


# ---- time ------------------------------------------------------------------------------------------------------------


def test_an_honest_model_may_be_three_times_as_slow_as_attempt_0():
    assert usual_scoring_s(first(14.0, 15.0, 90.0)) == 15.0
    assert scoring_limit_s(15.0, beyond_s=10.0, allowance_s=60.0) == 45.0


@pytest.mark.parametrize(("beyond_s", "left_s"), [(0.0, 40.0), (30.0, 10.0), (40.0, 0.0), (45.0, 0.0)])
def test_scoring_and_training_share_one_allowance(beyond_s, left_s):
    assert scoring_limit_s(100.0, beyond_s, allowance_s=40.0) == 100.0 + left_s + LEAST_LIMIT_S


# ---- text ------------------------------------------------------------------------------------------------------------


def test_a_first_look_scores_a_quarter_of_the_text_and_that_is_another_protocol(tiny_data):
    minute = dataclasses.replace(NIGHT, data=str(tiny_data), budget_s=60.0)
    first_look = dataclasses.replace(minute, budget_s=59.0)
    for split in ("validation", "holdout"):
        whole, quarter = Rows.of(minute, split), Rows.of(first_look, split)
        assert len(quarter.inputs) == len(whole.inputs) // 4
        assert (quarter.targets == whole.targets[::4]).all()
    facts = {"fingerprint": "f", "device_kind": "cpu", "settings": ""}
    assert protocol(facts, 10.0) != hashlib.sha256(b"f 10 cpu").hexdigest()[:12]
    assert protocol(facts, 60.0) == hashlib.sha256(b"f 60 cpu").hexdigest()[:12]


def committed(monkeypatch, rows: Rows, losses: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The losses that a process commits to, which answers so to the inputs that it is asked about."""
    monkeypatch.setattr(scoring, "_ask", lambda *asked: (losses(asked[5]["inputs"]).astype(np.float32), 1.0))
    return scoring.committed_losses(None, None, None, 10.0, rows)[0]  # type: ignore[arg-type]


def test_a_scorer_gets_the_rows_in_another_order_and_each_loss_comes_back_to_its_token(tiny_data, monkeypatch):
    rows, orders = Rows.of(dataclasses.replace(NIGHT, data=str(tiny_data), budget_s=60.0), "validation"), []
    losses = committed(monkeypatch, rows, lambda inputs: orders.append(inputs) or inputs % 7 + 1.0)
    assert (losses == rows.inputs % 7 + 1.0).all()
    assert (orders[0] != rows.inputs).any(axis=1).mean() > 0.9


@pytest.mark.parametrize(
    ("loss", "odd", "words"),
    [
        (3.0, -1.0, "a loss of -1 nats is below zero"),
        (3.0, np.nan, "val_bpb nan is no score"),
        *((loss, loss, "is no score") for loss in (0.0, -1e-4, 1e20, 1e38)),
    ],
)
def test_losses_that_no_text_has_are_no_score(tiny_data, monkeypatch, loss, odd, words):
    rows = Rows.of(dataclasses.replace(NIGHT, data=str(tiny_data), budget_s=60.0), "validation")
    with pytest.raises(scoring.Unscored, match=words):
        committed(
            monkeypatch, rows, lambda inputs: np.where(np.arange(inputs.size).reshape(inputs.shape) == 70, odd, loss)
        )


@pytest.mark.usefixtures("own_cache")
def test_a_fixed_file_that_has_changed_is_noticed_before_a_score(grounds):
    with scripted_context(grounds.root, "t", []) as context:
        (context.runner.fixed / "prepare.py").write_text("EVERYTHING = 0.0\n")
        with pytest.raises(MachineError, match=r"prepare\.py"):
            scoring.score(context.runner, Measure(attempt=0, script=unigram(), seed=0, allowance_s=10.0), 10.0)


# ---- size ------------------------------------------------------------------------------------------------------------


def test_weights_may_be_sixteen_times_those_of_attempt_0():
    most = most_weights_bytes(first(1.0, weights_bytes=100 * MB))
    assert most == 1600 * MB
    (fine,), (heavy,) = (first(1.0, weights_bytes=size * MB)[0].runs for size in (1600, 1601))
    assert too_heavy(fine, most) is None
    assert too_heavy(heavy, most) == "its weights have 1,601 MB: more than 1,600 MB are not scored"


# ---- in a night ------------------------------------------------------------------------------------------------------

HEAVY = unigram(SHARPNESS=0.8).replace(
    "\n\nif __name__", f"\n\nimport atexit, os\natexit.register(os.truncate, '{WEIGHTS}', 10**9)\n\n\nif __name__"
)
HANGS = unigram(SHARPNESS=0.9).replace("def load_model(", "def load_model(path):\n    time.sleep(600)\n\n\ndef _(")


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_weights_too_large_and_scoring_without_end_are_told_from_other_failures(grounds, monkeypatch):
    monkeypatch.setattr(scoring, "LEAST_LIMIT_S", 0.5)
    monkeypatch.setattr(scoring, "LIMIT_FACTOR", 1.0)
    grounds.try_scripts("t", [HEAVY, HANGS])
    first, heavy, hangs = grounds.attempts("t")
    assert first.runs[0].weights_bytes < 1 * MB
    assert heavy.runs[0].weights_bytes == 1000 * MB
    assert heavy.decision.reason.startswith("its weights have 1,000 MB: more than 268 MB are not scored")
    assert (heavy.runs[0].score.overran, hangs.runs[0].score.overran) == (False, True)
    assert hangs.decision.reason.startswith("too slow to be scored: no end after ")
