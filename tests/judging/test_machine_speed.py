"""A machine that was faster is no gain of an edit that cannot have changed its speed."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt
from nights import PROJECT

from agent.experiment import Attempt, Decision, History, Kind, Status, Summary
from agent.judging.judges import Balanced
from agent.judging.noise import know, measured
from agent.judging.speed import SPREAD, WORTH, at_one_speed, machine_speed
from agent.script.dials import Range, read_dials

TRAIN, DIAL_RUNS = PROJECT / "train_mlx.py", PROJECT / "benchmarks" / "dial_runs.tsv"
SCRIPT = "RATE = 0.1  # [0.01, 1.0] log\nROWS = 4  # {1, 2, 4, 8}\nWIDTH = 64  # [32, 512]\n"
RATE, ROWS, WIDTH = (SCRIPT.replace(*turn) for turn in (("0.1 ", "0.2 "), ("= 4", "= 8"), ("= 64", "= 96")))
CODE = SCRIPT + "print(1)\n"


def at_speed(attempt: Attempt, *steps_s: float) -> Attempt:
    """The same attempt, each of whose runs made so many steps a second."""
    speeds = zip(attempt.runs, steps_s, strict=True)
    runs = (replace(run, summary=Summary(training_seconds=10.0, num_steps=round(10 * speed))) for run, speed in speeds)
    return replace(attempt, runs=tuple(runs))


def edit(script: str, val_bpb: float, steps_s: float, number: int = 1, parent: int = 0) -> Attempt:
    return at_speed(scored_attempt(number, val_bpb, parent=parent, status=None, script=script), steps_s)


FIRST = at_speed(scored_attempt(0, 1.5, 1.502, 1.498, status=Status.KEEP, script=SCRIPT), 100, 100, 100)


def gain_bpb(attempt: Attempt, *others: Attempt) -> float:
    knowledge = know(measured((FIRST, *others), attempt))
    assert knowledge is not None
    return knowledge.effect(attempt.number).mean * knowledge.sigma_bpb


@pytest.mark.parametrize("steps_s", [80, 90, 110, 125])
def test_what_the_machine_brought_to_a_turned_rate_is_taken_out(steps_s):
    as_expected = 1.5 - 1.5 * WORTH * math.log(steps_s / 100)
    verdict = Balanced().judge(edit(RATE, as_expected, steps_s), [FIRST])
    assert verdict.gain_bpb == pytest.approx(0, abs=0.15 * abs(as_expected - 1.5))
    assert verdict.sure == pytest.approx(0.3, abs=0.2)  # the worth of speed is not known exactly
    faster = f"{abs(steps_s - 100)}% {'faster' if steps_s > 100 else 'slower'}"
    assert f"than its parent, while the machine was {faster}" in verdict.reason


@pytest.mark.parametrize("script", [ROWS, WIDTH, CODE])
def test_an_edit_that_may_change_the_speed_keeps_what_it_gains_by_it(script):
    faster = edit(script, 1.45, 125)
    assert at_one_speed([FIRST, faster])[1, 0] == (0.0, 0.0)
    assert machine_speed(faster, FIRST) is None
    assert gain_bpb(faster) == gain_bpb(edit(script, 1.45, 100)) > 0.04


def test_parameters_that_came_or_went_tell_that_a_rate_is_more_than_a_rate():
    sized = [replace(run, params=1000) for run in FIRST.runs]
    grown = edit(RATE, 1.45, 125)
    grown = replace(grown, runs=tuple(replace(run, params=2000) for run in grown.runs))
    assert machine_speed(grown, replace(FIRST, runs=tuple(sized))) is None


def test_an_edit_of_an_edit_is_measured_at_the_speed_of_the_first_of_its_kind():
    kept = replace(edit(ROWS, 1.45, 60), settled=True, decisions=(Decision(Kind.KEPT, ""),))
    turned = edit(ROWS.replace("0.1 ", "0.2 "), 1.45, 66, 2, 1)
    assert at_one_speed([FIRST, kept, turned])[2, 0].added == pytest.approx(1.5 * WORTH * math.log(1.1))
    assert machine_speed(turned, kept) == pytest.approx(1.1)


def test_repeats_at_other_speeds_teach_what_speed_is_worth():
    scores = [1.5 - 0.45 * math.log(speed) for speed in (0.8, 1.0, 1.2)]
    repeated = at_speed(scored_attempt(0, *scores, status=Status.KEEP, script=SCRIPT), 80, 100, 120)
    added = at_one_speed([repeated])
    assert (added[0, 2].added - added[0, 0].added) / math.log(1.2 / 0.8) == pytest.approx(0.45, rel=0.1)
    alone = at_one_speed([FIRST, edit(RATE, 1.5, 110)])[1, 0]
    assert alone == pytest.approx((1.5 * WORTH * math.log(1.1), 1.5 * SPREAD * math.log(1.1)))
    assert added[0, 2].error / math.log(1.2) < 0.4 * alone.error / math.log(1.1)


def test_steps_that_a_script_makes_up_move_a_score_by_little():
    scores = [1.2, 1.5, 1.8]
    repeated = at_speed(scored_attempt(0, *scores, status=Status.KEEP, script=SCRIPT), 101, 100, 99)
    steered = at_one_speed([repeated, edit(RATE, 1.5, 1e6)])[1, 0]
    assert 0 < steered.added < 0.08 * 1.5


def test_without_steps_and_for_a_number_of_its_own_nothing_is_taken_out():
    silent: History = (scored_attempt(0, 1.5, 1.502, status=Status.KEEP, script=SCRIPT),)
    assert at_one_speed(silent) == {}
    runs = (replace(run, score=replace(run.score, is_reported=True)) for run in FIRST.runs if run.score)
    assert at_one_speed([replace(FIRST, runs=tuple(runs))]) == {}


def test_recorded_runs_of_turned_rates_scatter_less_at_one_speed():
    """143 runs of 40 s on H100: of each host and text, those with seed 0 that turned rates alone."""
    dials = read_dials(TRAIN.read_text(), "cuda")
    rates = {dial.name for dial in dials if isinstance(dial.span, Range) and isinstance(dial.value, float)}
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in csv.DictReader(DIAL_RUNS.read_text().splitlines(), delimiter="\t"):
        turned = {each.partition("=")[0].strip() for each in row["turned"].split(";") if each}
        if turned <= rates and row["seed"] == "0" and row["val_bpb"]:
            steps_s = int(row["num_steps"]) / float(row["training_seconds"])
            groups.setdefault((row["text"], row["commit"]), []).append((float(row["val_bpb"]), math.log(steps_s)))
    assert [len(runs) for runs in groups.values()] == [37, 24, 23]
    for runs in groups.values():
        scores, speeds = (np.array(column) for column in zip(*runs, strict=True))
        at_one = scores + WORTH * scores.mean() * (speeds - speeds.mean())
        assert middle_scatter(at_one) < 0.85 * middle_scatter(scores)


def middle_scatter(scores: np.ndarray) -> float:
    """The standard deviation of the middle 80 %."""
    tenth = len(scores) // 10
    return float(np.sort(scores)[tenth : len(scores) - tenth].std())
