"""Early stop: what a curve says in mid-run, what a night has learnt of such curves, and a night that acts on it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import finished
from nights import Grounds, make_repository, scripted_context, terms_of, unigram

from agent.experiment import Ending, Status
from agent.judging.early_stop import FRACTIONS, LEAST_RUNS, Bound, Finished, bounds, losses
from agent.night.loop import run_night
from agent.records import terms
from agent.records.summary import Stopped
from agent.runs.outputs import read_losses
from agent.runs.train import EarlyStopCheck
from agent.view.words import stopped_line


def lines(*points: tuple[object, object]) -> bytes:
    return b"".join(json.dumps({"progress": p, "loss": loss}).encode() + b"\n" for p, loss in points)


# ---- reading a curve -------------------------------------------------------------------------------------------------


def test_a_loss_is_the_mean_over_the_tenth_of_the_budget_before():
    curve = lines((0.1, 9.0), (0.29, 9.0), (0.31, 4.0), (0.35, 5.0), (0.4, 6.0), (0.41, 1.0))
    assert losses(curve) == {0.4: 5.0}


def test_fractions_that_are_not_reached_yet_have_no_loss():
    assert losses(lines((0.05, 9.0), (0.39, 4.0))) == {}
    assert set(losses(lines((0.35, 5.0), (0.45, 4.0), (0.55, 3.0), (0.6, 2.0)))) == {0.4, 0.5, 0.6}


def test_between_two_long_steps_the_loss_is_in_between():
    assert losses(lines((0.2, 9.0), (0.45, 4.0))) == {0.4: pytest.approx(5.0)}
    assert losses(lines((0.9, 4.0))) == {}


def test_nonsense_is_passed_over():
    nonsense = b'[1]\nnull\n{"progress": 0.4}\n{"progress": true, "loss": 1}\n\xff\xfe\n' + b"[" * 100_000 + b"\n"
    numbers = (
        lines((0.36, 10**400), (-1, 3.0), (7, 3.0), ("0.4", 3.0), (0.37, None)) + b'{"progress": 0.4, "loss": NaN}\n'
    )
    assert losses(nonsense + numbers + lines((0.4, 5.0)) + b'{"progress": 0.9, "lo') == {0.4: 5.0}


def test_losses_whose_mean_would_be_infinite_are_passed_over():
    """An incumbent that has them would stop every later run."""
    assert losses(lines((0.35, -1.5e308), (0.36, -1.5e308), (0.4, 5.0))) == {0.4: 5.0}


@given(st.binary(max_size=200) | st.lists(st.tuples(st.floats(), st.floats()), max_size=20).map(lambda p: lines(*p)))
def test_whatever_is_written_there_losses_are_numbers(curve):
    assert all(math.isfinite(loss) for loss in losses(curve).values())


def test_a_folder_without_a_curve_has_no_losses(tmp_path):
    assert read_losses(tmp_path) == {}
    (tmp_path / "metrics.jsonl").symlink_to("/etc/passwd")
    assert read_losses(tmp_path) == {}


# ---- the bound -------------------------------------------------------------------------------------------------------


def scattered(runs: int, sigma_bpb: float, seed: int = 0) -> list[Finished]:
    rng = np.random.default_rng(seed)
    return [finished(1.8 + 0.05 * rng.random(), above=3 * sigma_bpb * rng.standard_normal()) for _ in range(runs)]


def test_too_few_runs_bound_nothing():
    assert bounds(scattered(LEAST_RUNS - 1, 0.001), finished(1.8)) == ()
    assert len(bounds(scattered(LEAST_RUNS, 0.001), finished(1.8))) == len(FRACTIONS)


def test_the_more_losses_stray_the_more_is_allowed():
    tight, loose = (bounds(scattered(20, sigma), finished(1.8))[0] for sigma in (0.001, 0.01))
    assert tight.incumbent_loss < tight.loss < loose.loss


def test_where_losses_say_nothing_about_scores_nothing_is_stopped():
    upside_down = [Finished(dict.fromkeys(FRACTIONS, -run.val_bpb), run.val_bpb) for run in scattered(20, 0.001)]
    all_alike = [Finished(dict.fromkeys(FRACTIONS, 3.0), run.val_bpb) for run in scattered(20, 0.001)]
    assert bounds(upside_down, upside_down[0]) == bounds(all_alike, all_alike[0]) == ()


def test_wrecks_teach_nothing_about_the_incumbent():
    runs = scattered(20, 0.001)
    wrecks = [Finished(finished(4.0 + k, above=-2.0 * k).losses, 4.0 + k) for k in range(3)]
    plain, wrecked = (bounds(some, finished(1.8))[0].loss for some in (runs, runs + wrecks))
    assert wrecked == pytest.approx(plain, abs=0.01)


def test_a_flattering_curve_of_the_incumbent_stops_no_further_runs():
    runs = scattered(20, 0.001)
    honest, flattered = finished(1.8), finished(1.8, above=-1.0)
    for bound, other in zip(bounds(runs, honest), bounds(runs, flattered), strict=True):
        assert other.loss > bound.loss - 0.02


def test_an_edit_as_good_as_the_incumbent_is_hardly_ever_stopped():
    """One in a hundred is what the rule allows itself, all looks together; scores and losses both are noisy here."""
    rng, killed, nights = np.random.default_rng(0), 0, 150
    for _ in range(nights):
        runs = [finished(1.8 + 0.01 * rng.random() ** 2, above=0.01 * rng.standard_normal()) for _ in range(12)]
        new = finished(1.8, above=0.01 * rng.standard_normal())
        killed += any(bound.verdict(new.losses) for bound in bounds(runs, finished(1.8)))
    assert killed <= 5  # of a binomial with p = 0.01, more are seen once in 300 times


def test_the_verdict_names_the_point_and_the_difference():
    bound = Bound(0.5, loss=3.1, incumbent_loss=3.0, slope=0.5, offset_bpb=0.3)
    assert bound.verdict({0.5: 3.213}) == "stopped early at 50%: its loss was 0.213 above the incumbent's"
    assert bound.verdict({0.5: 3.1}) is bound.verdict({0.4: 9.9}) is None
    assert bound.forecast_bpb({0.5: 3.2}) == pytest.approx(1.9)


def test_a_bound_that_was_passed_is_not_asked_again(tmp_path):
    check = EarlyStopCheck(tmp_path, (Bound(0.4, 3.0, 2.9, 1.0, 0.0), Bound(0.6, 2.0, 1.9, 1.0, 0.0)))
    curve = tmp_path / "metrics.jsonl"
    curve.write_bytes(lines((0.35, 2.5), (0.45, 2.5)))
    assert not check.has_failed()
    curve.write_bytes(lines((0.35, 9.0), (0.45, 9.0)))  # second thoughts of a script, too late
    assert not check.has_failed()
    curve.write_bytes(lines((0.55, 2.5), (0.6, 2.5)))
    assert check.has_failed()
    assert check.verdict == "stopped early at 60%: its loss was 0.600 above the incumbent's"


def test_it_is_off_unless_asked_for():
    asked = (terms_of(*more) for more in ([], ["--early-stop"]))
    assert [terms.opened(one).early_stop for one in asked] == [False, True]


# ---- a night ---------------------------------------------------------------------------------------------------------

BEGINS = "    while (elapsed"


def trained(sharpness: float, *, loss: float | None = None, stalls: bool = False) -> str:
    """A toy that writes its curve at once; its loss tells its score, unless another is named. One that stalls has come
    to 45 % of its budget when it does, and would go on in a minute."""
    told = round(5 - 2 * sharpness, 6) if loss is None else loss
    curve = f"""    with (options.out / "metrics.jsonl").open("a") as curve:
        for share in range(1, {46 if stalls else 101}):
            curve.write(json.dumps({{"progress": share / 100, "loss": {told}}}) + "\\n")
    time.sleep({60 if stalls else 0})
"""
    return unigram(SHARPNESS=sharpness).replace('"loss": 1.0', f'"loss": {told}').replace(BEGINS, curve + BEGINS)


LEARNT = [trained(0.5 - 0.02 * k) for k in range(1, LEAST_RUNS)]  # each a little worse than the baseline
BAD, BAD_LATER = trained(0.2, stalls=True), trained(0.25, stalls=True)
GOOD, MISLED = trained(0.6), trained(1.0, loss=7.0, stalls=True)
UNSEEN = trained(0.3).replace("metrics.jsonl", "hidden.jsonl")


@pytest.fixture(scope="module")
def morning(tmp_path_factory, tiny_data):
    """After a night with --early-stop of more runs than it learns from."""
    root = tmp_path_factory.mktemp("early") / "user"
    grounds = Grounds(make_repository(root, trained(0.5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        scripts = [*LEARNT, BAD, GOOD, BAD_LATER, MISLED, UNSEEN]
        with scripted_context(root, "t", scripts, early_stop=True) as context:
            run_night(context)
    return grounds


@pytest.mark.slow
def test_a_hopeless_run_is_stopped_and_is_a_discard_without_a_score(morning):
    bad = morning.attempts("t")[LEAST_RUNS]
    run = bad.runs[0]
    assert (run.ending, run.score, bad.status, bad.val_bpb) == (Ending.HOPELESS, None, Status.DISCARD, None)
    assert bad.decision.reason.startswith("stopped early at 40%: its loss was 0.600 above the incumbent's")
    assert bad.done_runs == bad.runs  # it counts as tried
    assert bad.decision.gain_bpb < -0.1  # what its curve forecast, for those who learn from scores


@pytest.mark.slow
def test_what_came_before_enough_was_known_ran_to_its_end(morning):
    assert {run.ending for attempt in morning.attempts("t")[:LEAST_RUNS] for run in attempt.runs} == {Ending.FINISHED}


@pytest.mark.slow
def test_a_better_run_is_finished_and_is_what_later_ones_are_held_to(morning):
    good, later = morning.attempts("t")[LEAST_RUNS + 1 : LEAST_RUNS + 3]
    assert (good.status, good.runs[0].ending) == (Status.KEEP, Ending.FINISHED)
    assert later.decision.reason.startswith("stopped early at 40%: its loss was 0.700 above the incumbent's")


@pytest.mark.slow
def test_a_loss_that_means_something_else_misleads_which_is_why_it_is_off_by_default(morning):
    misled = morning.attempts("t")[LEAST_RUNS + 3]
    assert misled.runs[0].ending is Ending.HOPELESS


@pytest.mark.slow
def test_a_script_that_hides_its_curve_gets_the_time_that_it_would_have_had(morning):
    unseen = morning.attempts("t")[LEAST_RUNS + 4]
    assert unseen.runs[0].ending is Ending.FINISHED
    assert unseen.val_bpb is not None


@pytest.mark.slow
def test_the_morning_tells_how_many_were_stopped_and_what_it_saved(morning):
    runs = [run for attempt in morning.attempts("t") for run in attempt.done_runs]
    stopped = Stopped.of(runs)
    assert stopped is not None
    line = stopped_line(stopped)
    assert line.startswith(f"3 of {LEAST_RUNS + 5} runs stopped early, which saved ")
    assert morning.nightshift("show", str(LEAST_RUNS)).stdout.count("stopped early at 40%") == 2  # decision and run
    assert "3 of 11 runs stopped early" in morning.nightshift("status").stdout
    row = morning.rows()[LEAST_RUNS]
    assert (row["status"], row["val_bpb"], row["seeds"]) == ("discard", "", "1")
    assert row["reason"].startswith("stopped early at 40%")
