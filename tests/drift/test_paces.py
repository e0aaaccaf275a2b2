"""A machine that is slower for good goes on at its new pace: what was measured before is compared by the difference."""

from dataclasses import replace

import pytest
from drifting import attempt, timed

from agent.drift.paces import changes, lasting, restated, to_measure_again
from agent.experiment import Ending

SLOW_ONCE = timed(6.0, Ending.SLOWED, at_s=20), timed(10.0, at_s=30)
SLOW_FOR_GOOD = (
    timed(6.0, Ending.SLOWED, at_s=20), timed(6.1, Ending.SLOWED, at_s=30), timed(6.0, at_s=40)
)  # fmt: skip
BEGAN = "2026-11-22T00:00:40"


def test_a_void_run_is_no_change_and_a_third_that_is_as_slow_is_one():
    assert changes([attempt(3, *SLOW_ONCE)], []) == ()
    assert changes([attempt(3, *SLOW_FOR_GOOD)], []) == (BEGAN,)
    assert [run.began for run in lasting(attempt(3, *SLOW_FOR_GOOD))] == [BEGAN]


def test_a_third_run_at_the_usual_speed_ends_the_spell():
    assert changes([attempt(3, *SLOW_FOR_GOOD[:2], timed(10.0, at_s=40))], []) == ()


def test_void_runs_of_two_seeds_do_not_add_up():
    runs = timed(6.0, Ending.SLOWED), timed(6.0), timed(6.0, Ending.SLOWED, seed=1), timed(6.0, seed=1)
    assert changes([attempt(3, *runs)], []) == ()


def test_the_end_of_a_spell_is_another_change_seen_by_repeats_of_a_kept_script_alone():
    spell = attempt(3, *SLOW_FOR_GOOD)
    kept = attempt(
        1, timed(10.0), *(timed(6.0, seed=seed, at_s=49 + seed) for seed in (1, 2)), timed(9.9, seed=3, at_s=55)
    )
    assert changes([spell], [kept]) == (BEGAN, "2026-11-22T00:00:55")
    assert changes([spell], [attempt(1, timed(10.0), timed(6.0, seed=1, at_s=50), timed(9.9, seed=2, at_s=51))]) == (
        BEGAN,
    )
    assert changes([], [kept]) == ()


def test_the_incumbent_is_measured_again_by_two_scored_runs_since_the_change():
    best = attempt(1, timed(10.0, val_bpb=1.0), timed(6.0, seed=1, at_s=50, val_bpb=1.1), timed(6.0, seed=2, at_s=51))
    first = attempt(0, timed(10.0, val_bpb=1.2))
    assert to_measure_again([first], best, ()) is to_measure_again([], None, ()) is None
    assert to_measure_again([first], best, (BEGAN,)) is best
    scored = replace(best, runs=(*best.runs[:2], timed(6.0, seed=2, at_s=51, val_bpb=1.1)))
    assert to_measure_again([first], scored, (BEGAN,)) is first, "by whose speed the machine is known"
    again = replace(first, runs=(*first.runs, timed(6.0, seed=1, at_s=52)))
    assert to_measure_again([again], scored, (BEGAN,)) is None


def test_scores_of_an_earlier_pace_are_shifted_by_those_that_have_both():
    first = attempt(0, timed(10.0, val_bpb=1.20))
    best = attempt(1, timed(10.0, val_bpb=1.00), timed(6.0, seed=1, at_s=50, val_bpb=1.10))
    fresh = attempt(3, *SLOW_FOR_GOOD[:2], timed(6.0, at_s=40, val_bpb=1.08))
    now = restated([first, best, fresh], (BEGAN,))
    assert [one.scores_bpb for one in now] == [pytest.approx((1.3,)), pytest.approx((1.1, 1.1)), (1.08,)]
    assert first.scores_bpb == (1.20,), "the records stay as they are"
    assert restated([first, fresh], (BEGAN,))[0].scores_bpb == (1.20,), "nothing was measured on both sides"


def test_two_changes_are_restated_one_after_the_other():
    runs = (
        timed(10.0, val_bpb=1.0),
        timed(6.0, seed=1, at_s=50, val_bpb=1.1),
        timed(10.0, seed=2, at_s=58, val_bpb=1.02),
    )
    old = attempt(0, timed(10.0, val_bpb=1.2))
    now = restated([old, attempt(1, *runs)], (BEGAN, "2026-11-22T00:00:55"))
    assert now[0].scores_bpb == pytest.approx((1.22,))
    assert now[1].scores_bpb == pytest.approx((1.02, 1.02, 1.02))
