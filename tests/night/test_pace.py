"""A promise about time: what a night of so many hours begins, and what it leaves for another call."""

import dataclasses
import re
import sqlite3
from contextlib import closing

import pytest
from commands import refused
from judged import scored_attempt
from nights import scripted_context, unigram

from agent.clock import always_s
from agent.experiment import DryRun, Ending, Run, Score, Status
from agent.judging.judges import Balanced
from agent.night import limits, lock
from agent.night.limits import ENOUGH_RUNS, Limits, Pace
from agent.night.loop import run_night

BASELINE = scored_attempt(0, 1.5, status=Status.KEEP)


def began(hours: float, ago_s: float, **options: int) -> Limits:
    return Limits(hours=hours, began_s=always_s() - ago_s, **options)


# ---- what is expected ------------------------------------------------------------------------------------------------


def test_a_run_is_expected_to_take_what_the_longest_took_and_one_of_the_confirmation_a_second_scoring_more():
    runs = (
        Run(0, Ending.FINISHED, 0, 300.0, None, "", Score(1.0, 20.0)),
        Run(1, Ending.FINISHED, 0, 310.0, None, "", Score(1.0, 25.0), holdout=Score(1.1, 30.0)),
        Run(2, Ending.HOPELESS, None, 130.0, None, ""),  # stopped early: with it, the mean would be too short
        Run(3, Ending.INVALID, None, 900.0, None, ""),
    )
    first = dataclasses.replace(BASELINE, runs=runs)
    pace = Pace.of([first], [], 300.0)
    assert (pace.run_s, pace.confirmation_run_s) == (310 + 25, 310 + 25 + 30)


def spent(wall_s: float, began: str, ending: Ending = Ending.FINISHED) -> Run:
    return Run(0, ending, 0, wall_s, None, "", began=began)


def test_where_a_night_goes_on_its_longest_run_counts_until_enough_had_their_whole_budget_there():
    before, called, later = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-02T01:00:00.000Z"
    here = [spent(310.0 + number, called if number % 2 else later) for number in range(ENOUGH_RUNS - 1)]
    stopped = [spent(130.0, later, Ending.HOPELESS)] * 9
    for more, run_s in (((), 360.0), ((spent(305.0, later),), 312.0)):
        first = dataclasses.replace(BASELINE, runs=(spent(360.0, before), *here, *stopped, *more))
        assert Pace.of([first], [], 300.0, since=called).run_s == run_s
        assert Pace.of([first], [], 300.0).run_s == 360.0


@pytest.mark.slow
def test_a_night_that_goes_on_expects_what_its_runs_take_now_and_no_dry_run_that_it_does_not_make(grounds, monkeypatch):
    monkeypatch.setattr(limits, "ENOUGH_RUNS", 1)
    with scripted_context(grounds.root, "t", []) as context:
        run_night(context)
        context.journal.record_dry_run(0, DryRun(12.0, None))
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE runs SET wall_s = 1000")  # times of a slower machine
    with scripted_context(grounds.root, "t", [unigram(SHARPNESS=0.6)]) as context:
        before_s = context.state().pace.run_s
        assert before_s > 1000
        assert dataclasses.replace(context, dry_runs=True).state().pace.run_s == before_s + 12.0
        run_night(context)
        assert context.state().pace.run_s == grounds.attempts("t")[1].runs[0].spent_s


def test_a_night_with_several_workers_promises_only_whole_runs_of_each():
    pace = Pace(run_s=317.0, workers=4)
    assert began(1.0, ago_s=3600 - 630, confirmation_runs=0).pace_words(pace).endswith(" and time for about 4")


# ---- what is begun ---------------------------------------------------------------------------------------------------


def test_an_idea_needs_the_time_of_asking_and_running_and_of_the_confirmation():
    pace = Pace(run_s=100.0)
    # a run, one of the confirmation, 50 s before, 10 s to spare
    assert not began(0.25, ago_s=900 - 260).reached(2, pace, 50.0)
    assert began(0.25, ago_s=900 - 240).reached(2, pace, 50.0)
    assert not began(0.25, ago_s=900 - 160, confirmation_runs=0).reached(2, pace, 50.0)


def test_a_further_run_needs_its_time_and_that_of_the_confirmation_which_calibration_does_not_wait_for():
    pace = Pace(run_s=100.0, asking_s=600.0)
    limits = began(0.25, ago_s=900 - 150)
    assert (limits.allows_run(0, pace), limits.allows_run(1, pace)) == (True, False)
    assert began(0.25, ago_s=900 - 250).allows_run(1, pace)
    assert Limits().allows_run(1, pace)


def test_a_night_has_as_many_experiments_as_it_was_given():
    assert [Limits(experiments=2).reached(ideas, Pace(1.0), 0.0) for ideas in (1, 2)] == [False, True]


# ---- nights ----------------------------------------------------------------------------------------------------------


def test_less_than_one_run_is_refused_with_the_least_that_makes_sense(grounds):
    said = refused(grounds.nightshift("run", "--hours", "0.001", "--budget-s", "0.05", "--tag", "t"))
    assert said == ("--hours 0.001 is less than one run takes, about 10 s with start and scoring; give it more")
    assert not grounds.folder("t").exists()


@pytest.mark.slow
def test_no_run_begins_that_would_end_after_the_hours_and_what_is_unfinished_is_named_and_audited(grounds):
    (grounds.root / "train_mlx.py").write_text(unigram(JITTER=0.01))
    with scripted_context(grounds.root, "t", []) as context:  # attempt 0 is begun in any case
        run_night(dataclasses.replace(context, judge=Balanced(), limits=Limits(hours=1e-9)))
    assert context.watcher.sentences == ["no time is left for #0; to go on: nightshift run --tag t"]
    first = grounds.attempts("t")[0]
    assert (len(first.done_runs), first.decision) == (1, None)
    assert first.runs[0].score is not None
    assert first.runs[0].score.audit is not None  # the night needs its weights no longer
    assert "1 unfinished" in grounds.nightshift("status").stdout


@pytest.mark.slow
def test_a_night_that_ends_by_its_hours_says_so_and_how_to_go_on(grounds):
    with scripted_context(grounds.root, "t", [unigram(JITTER=0.02)]) as context:
        run_night(dataclasses.replace(context, limits=Limits(hours=1e-9)))
    last = context.watcher.sentences[-1]
    assert re.fullmatch(r"no time is left for another run, of [^;]+; to go on: nightshift run --tag t", last)


def test_the_hours_go_on_while_the_machine_sleeps_and_whatever_the_clock_of_the_day_says(tmp_path, monkeypatch):
    now_s = 1000.0  # a clock that counts sleep
    monkeypatch.setattr(limits, "always_s", lambda: now_s)
    monkeypatch.setattr(lock, "utc_now", lambda: "2001-01-01T00:00:00Z")
    night, pace = Limits(hours=8.0, began_s=now_s), Pace.of([BASELINE], [], 300.0)
    with lock.only_night(tmp_path) as tell:
        tell("t", tmp_path, night)
        now_s += 7 * 3600
        running = lock.holder(tmp_path)
        assert running is not None
        assert running.left(0).seconds == night.left(0).seconds == 3600
        assert not night.is_over(pace)
        now_s += 3600
        assert running.left(0).seconds == 0
        assert night.is_over(pace)


# ---- what is kept for the confirmation -------------------------------------------------------------------------------


def test_hours_keep_an_eighth_for_the_confirmation():
    history = [scored_attempt(0, 1.0, 1.0, status=Status.KEEP)]  # a run: 1 s of training and 1 s of scoring
    limits, pace = Limits(hours=160 / 3600), Pace.of(history, [], 1.0)
    assert limits.reserved_runs(pace) == 6  # runs of 3 s
    assert not limits.reached(0, pace, 0.0)
    # 19 s are left, of which 18 s are the confirmation's
    later = Limits(hours=160 / 3600, began_s=limits.began_s - 141)
    assert later.reached(0, pace, 0.0)
    assert not later.is_over(pace)
    assert later.allows_confirmation_run(pace)
    last = Limits(hours=160 / 3600, began_s=limits.began_s - 157.5)  # 2.5 s are left
    assert not last.is_over(pace)
    assert not last.allows_confirmation_run(pace)
    assert Limits(hours=160 / 3600, began_s=limits.began_s - 159).is_over(pace)
