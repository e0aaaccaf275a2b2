"""Runs of a same script are compared with each other, and an edit's own speed is never taken for the machine's."""

import json

import pytest
from drifting import attempt, timed

from agent.drift.speeds import (
    FLOOR,
    UNKNOWN,
    Usual,
    are_slow,
    least_tokens_s,
    points_of,
    slowed_within,
    slowness,
    speeds,
    step_at,
    steps_s,
    threshold,
)
from agent.experiment import Ending


def curve(*rates: float, points: int = 100) -> bytes:
    """A metrics.jsonl of a run whose speed is constant within equal parts of it, in steps by share of the budget."""
    step, lines = 0.0, []
    for at in range(1, points + 1):
        step += rates[min(len(rates) - 1, (at - 1) * len(rates) // points)] / points
        lines.append(json.dumps({"step": step, "progress": at / points, "loss": 1.0}))
    return "\n".join(lines).encode()


# ---- the threshold ---------------------------------------------------------------------------------------------------


def test_before_three_pairs_of_repeats_a_lot_has_to_be_lost():
    assert threshold([]) == threshold([(1.0,), (2.0,)]) == threshold([(1.0, 1.1), (2.0, 2.1)]) == UNKNOWN


def test_repeats_that_hardly_stray_leave_the_floor_and_others_raise_it():
    assert threshold([(100, 100.3, 99.8)]) == FLOOR
    quiet, loud = threshold([(100, 102, 99)]), threshold([(100, 110, 90)])
    assert FLOOR < quiet < loud < 1


def test_scripts_of_different_speeds_do_not_widen_the_spread_and_neither_does_one_slow_run():
    alike = [(100, 100.4), (50, 50.2), (20, 20.1), (70, 70.2), (30, 30.1)]
    assert threshold(alike) == FLOOR
    assert threshold([*alike, (100, 60)]) == FLOOR
    assert threshold([*alike, [2**k for k in range(8)]]) == FLOOR, "nor a script that says something else each time"


# ---- repeats ---------------------------------------------------------------------------------------------------------


def test_a_run_is_slow_by_the_other_runs_of_its_script_alone():
    usual = Usual(0.05, same=(9.9, 10.0, 10.1))
    assert usual.lost(timed(7.0)) == pytest.approx(0.3)
    assert usual.lost(timed(9.6)) is None
    assert usual.lost(timed(12.0)) is None
    assert Usual(0.05).lost(timed(1.0)) is None


def test_short_runs_and_those_that_did_not_finish_tell_nothing():
    assert steps_s(timed(10.0)) == pytest.approx(10.0)
    assert steps_s(timed(10.0, trained_s=1.0)) is None
    assert steps_s(timed(10.0, Ending.CRASHED)) is None
    assert slowness(1.0, ()) is None


def test_the_first_run_of_attempt_0_and_void_ones_are_no_measure():
    runs = timed(5.0), timed(10.0, seed=1), timed(6.0, Ending.SLOWED, seed=2), timed(10.2, seed=2)
    assert speeds(attempt(0, *runs)) == pytest.approx((10.0, 10.2))
    assert speeds(attempt(1, *runs)) == pytest.approx((5.0, 10.0, 10.2))
    assert speeds(attempt(1, *runs), since="2026-11-22T00:00:02") == pytest.approx((10.2,))


# ---- first runs of edits ---------------------------------------------------------------------------------------------


def test_a_run_that_slows_down_within_itself_is_suspect_and_a_steady_one_is_not():
    usual, run = Usual(0.05), timed(10.0)
    assert slowed_within(points_of(curve(100, 100))) == pytest.approx(0.0, abs=0.01)
    assert slowed_within(points_of(curve(100, 60))) == pytest.approx(0.4, abs=0.01)
    assert usual.is_suspect(run, points_of(curve(100, 60)))
    assert not usual.is_suspect(run, points_of(curve(60, 100)))
    assert not usual.is_suspect(run, points_of(curve(10, 6))), "a few steps tell nothing"
    assert not Usual(0.05, same=(10.0,)).is_suspect(run, points_of(curve(100, 60))), "its script's other runs tell more"


def test_nonsense_in_a_curve_is_left_out():
    known = b'{"progress": 0.5, "step": 5}\n', b'{"progress": 1.0, "step": 10}\n'
    lines = known[0] + b'{"progress": 2, "step": 7}\n[]\n{"progress": "x"}\n' + known[1] + b'{"pro'
    points = points_of(lines)
    assert points == [(0.5, 5), (1.0, 10)]
    assert step_at(points, 0.75) == 7.5
    assert step_at(points, 0.25) is None
    assert slowed_within([]) is None


def test_one_slow_edit_is_its_own_doing_and_the_third_in_a_row_is_suspect():
    assert least_tokens_s([1.0, 1.0, 1.0, 1.0, 0.8], 100.0, 0.05) is None
    limit = least_tokens_s([1.0, 1.0, 1.0, 0.8, 0.8], 100.0, 0.05)
    assert limit == pytest.approx(95.0)
    usual = Usual(0.05, least_tokens_s=limit)
    assert usual.is_suspect(timed(8.0, tokens_s=80.0), [])
    assert not usual.is_suspect(timed(9.9, tokens_s=99.0), [])


def test_where_edits_are_usually_slower_they_are_measured_by_that():
    assert least_tokens_s([0.8] * 10, 100.0, 0.05) is None
    assert are_slow([0.7, 0.7], [0.8, 0.8, 0.8], 0.05)
    assert not are_slow([0.7, 0.79], [0.8, 0.8, 0.8], 0.05)
    assert not are_slow([], [1.0], 0.05)
