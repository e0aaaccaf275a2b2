"""Early stop: what a curve says in mid-run, what a night has learnt of such curves, and a night that acts on it."""

import json

import numpy as np
import pytest
from judged import finished
from nights import Grounds, make_repository, scripted_context, unigram

from agent.experiment import Ending, Status
from agent.judging.early_stop import FRACTIONS, LEAST_RUNS, WORST_BPB, Bound, Finished, bounds, losses
from agent.night.loop import run_night
from agent.runs.train import EarlyStopCheck


def lines(*points: tuple[object, object]) -> bytes:
    return b"".join(json.dumps({"progress": p, "loss": loss}).encode() + b"\n" for p, loss in points)


# ---- reading a curve -------------------------------------------------------------------------------------------------


def test_a_loss_is_the_mean_over_the_tenth_of_the_budget_before():
    curve = lines((0.1, 9.0), (0.29, 9.0), (0.31, 4.0), (0.35, 5.0), (0.4, 6.0), (0.41, 1.0))
    assert losses(curve) == {0.4: 5.0}


def test_nonsense_is_passed_over():
    nonsense = b'[1]\nnull\n{"progress": 0.4}\n{"progress": true, "loss": 1}\n\xff\xfe\n' + b"[" * 100_000 + b"\n"
    numbers = (
        lines((0.36, 10**400), (-1, 3.0), (7, 3.0), ("0.4", 3.0), (0.37, None)) + b'{"progress": 0.4, "loss": NaN}\n'
    )
    assert losses(nonsense + numbers + lines((0.4, 5.0)) + b'{"progress": 0.9, "lo') == {0.4: 5.0}


# ---- the bound -------------------------------------------------------------------------------------------------------


def scattered(runs: int, sigma_bpb: float, seed: int = 0) -> list[Finished]:
    rng = np.random.default_rng(seed)
    return [finished(1.8 + 0.05 * rng.random(), above=3 * sigma_bpb * rng.standard_normal()) for _ in range(runs)]


def test_where_losses_say_nothing_about_scores_nothing_is_stopped():
    upside_down = [Finished(dict.fromkeys(FRACTIONS, -run.val_bpb), run.val_bpb) for run in scattered(20, 0.001)]
    all_alike = [Finished(dict.fromkeys(FRACTIONS, 3.0), run.val_bpb) for run in scattered(20, 0.001)]
    assert bounds(upside_down, upside_down[0]) == bounds(all_alike, all_alike[0]) == ()


def test_an_edit_as_good_as_the_incumbent_is_hardly_ever_stopped():
    """One in a hundred is what the rule allows itself, all checks together; scores and losses both are noisy here."""
    rng, killed, nights = np.random.default_rng(0), 0, 150
    for _ in range(nights):
        runs = [finished(1.8 + 0.01 * rng.random() ** 2, above=0.01 * rng.standard_normal()) for _ in range(12)]
        new = finished(1.8, above=0.01 * rng.standard_normal())
        killed += any(bound.forecast_bpb(new.losses) for bound in bounds(runs, finished(1.8)))
    assert killed <= 5  # a binomial with p = 0.01 exceeds this once in 300 times


def test_a_bound_forecasts_the_score_of_a_run_that_is_hopeless_and_is_asked_once(tmp_path):
    check = EarlyStopCheck(tmp_path, (Bound(0.4, 3.0, 1.0, 0.0), Bound(0.6, 2.0, 0.5, 0.3)))
    curve = tmp_path / "metrics.jsonl"
    curve.write_bytes(lines((0.35, 2.5), (0.45, 2.5)))
    assert not check.has_failed()
    curve.write_bytes(lines((0.35, 9.0), (0.45, 9.0)))  # second thoughts of a script, too late
    assert not check.has_failed()
    curve.write_bytes(lines((0.55, 2.6), (0.6, 2.6)))
    assert check.has_failed()
    assert check.forecast_bpb == pytest.approx(1.6)
    assert Bound(0.5, 3.0, 1.0, 0.0).forecast_bpb({0.5: 1e300}) == WORST_BPB


# ---- a night ---------------------------------------------------------------------------------------------------------

BEGINS = "    while (elapsed"


def trained(sharpness: float, *, stalls: bool = False) -> str:
    """A toy that writes its curve at once; its loss tells its score. One that stalls does so at 45 % of its budget."""
    loss = round(5 - 2 * sharpness, 6)
    curve = f"""    with (options.out / "metrics.jsonl").open("a") as curve:
        for share in range(1, {46 if stalls else 101}):
            curve.write(json.dumps({{"progress": share / 100, "loss": {loss}}}) + "\\n")
    time.sleep({60 if stalls else 0})
"""
    return unigram(SHARPNESS=sharpness).replace('"loss": 1.0', f'"loss": {loss}').replace(BEGINS, curve + BEGINS)


@pytest.mark.slow
def test_a_night_stops_what_is_hopeless_once_enough_runs_have_ended(tmp_path, tiny_data, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    grounds = Grounds(make_repository(tmp_path / "user", trained(0.5)))
    learnt = [trained(0.5 - 0.02 * k) for k in range(1, LEAST_RUNS)]  # each a little worse than the baseline
    scripts = [*learnt, trained(0.2, stalls=True), trained(0.6)]
    with scripted_context(grounds.root, "t", scripts, early_stop=True) as context:
        run_night(context)
    *_, bad, good = grounds.attempts("t")
    (run,) = bad.runs
    assert (run.ending, run.score, bad.status, bad.val_bpb) == (Ending.HOPELESS, None, Status.DISCARD, None)
    assert bad.decision.reason.startswith("stopped early: its losses forecast a score of ")
    assert bad.decision.gain_bpb < -0.1  # learners read the forecast of its curve
    assert (good.status, good.runs[0].ending) == (Status.KEEP, Ending.FINISHED)
