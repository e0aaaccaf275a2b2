"""Attempt 0 is measured alone and beside itself, and the night says by how much its workers slow each other down."""

from dataclasses import replace

import pytest
from judged import scored_attempt, scored_run

from agent.experiment import Attempt, Run, Summary
from agent.pools.contention import Contention, contention_of


def made_run(seed: int, began_s: int, steps: int, worker: str = "gpu 0") -> Run:
    """A run that began so many seconds after midnight, and took ten seconds to start."""
    began, ended = (
        f"2026-11-22T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}.000Z" for at in (began_s, began_s + 300)
    )
    summary = Summary(training_seconds=290.0, num_steps=steps)
    return replace(scored_run(seed, 1.0), wall_s=300.0, summary=summary, worker=worker, began=began, ended=ended)


def calibrated(*runs: Run, number: int = 0) -> Attempt:
    return replace(scored_attempt(number, *(1.0 for _ in runs)), runs=runs)


def test_the_baseline_alone_is_compared_with_itself_beside_others():
    first = made_run(0, 0, 1000)
    beside = made_run(1, 300, 930), made_run(2, 301, 950, "gpu 1")
    found = contention_of([calibrated(first, *beside)])
    assert found == Contention(pytest.approx(0.06), alone=1, beside=2, workers=2)
    assert found.is_notable
    assert "6.0% slower beside other runs than alone (2 runs on 2 workers, 1 alone)" in found.words


def test_a_cold_start_is_no_speed():
    """The first run compiles: it is longer, and trains for as long."""
    first = made_run(0, 0, 1000)
    cold = replace(first, wall_s=400.0, began="2026-11-21T23:58:20.000Z")
    beside = made_run(1, 300, 1000), made_run(2, 300, 1000, "gpu 1")
    found = contention_of([calibrated(cold, *beside)])
    assert found is not None
    assert found.slowdown == pytest.approx(0.0)


def test_what_attempt_0_met_later_is_not_taken_for_solitude():
    """Its own runs are enough to know: one that none of them accompanied may have had other attempts beside it."""
    runs = made_run(0, 0, 1000), made_run(1, 300, 950), made_run(2, 300, 950, "gpu 1"), made_run(3, 4000, 800)
    found = contention_of([calibrated(*runs)])
    assert found is not None
    assert (found.slowdown, found.alone, found.beside) == (pytest.approx(0.05), 1, 2)


def test_a_night_with_one_worker_says_nothing_of_it():
    assert contention_of([]) is None
    assert contention_of([calibrated(made_run(0, 0, 1000), made_run(1, 300, 900))]) is None


def test_runs_that_tell_no_speed_or_no_time_do_not_count():
    first = made_run(0, 0, 1000)
    beside = made_run(1, 300, 900), made_run(2, 300, 900, "gpu 1")
    silent = replace(beside[0], summary=None), replace(beside[1], began=None)
    assert contention_of([calibrated(first, *silent)]) is None
