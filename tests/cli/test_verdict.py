"""What the proposer of an edit is told: why, where to read on, and what to do next."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import NIGHT, attempt, night

from agent.cli.trying import answer_of_try, commands_after, verdict_lines
from agent.experiment import Attempt, DryRun, Ending, Kind, Run
from agent.view import words
from agent.view.answer import TryAnswer

CRASH = 'Traceback (most recent call last):\n  File "train_mlx.py", line 3\nValueError: 2 rows of 3'
BEFORE = attempt(0, Kind.BASELINE, 1.5), attempt(1, Kind.KEPT, 1.25)


def verdict_on(attempt: Attempt, folder: Path = Path("/nowhere"), merged_onto: int | None = None) -> TryAnswer:
    return answer_of_try("t0001", night(*BEFORE, attempt), attempt, folder, merged_onto)


def test_a_crash_of_the_training_is_told_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "runs" / "0002" / "seed0" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    run = Run(0, Ending.CRASHED, 1, 1.0, None, CRASH)
    answer = verdict_on(attempt(2, Kind.CRASHED, runs=[run]), tmp_path)
    assert (answer.traceback, answer.log) == (CRASH, str(log))
    assert answer.next.startswith("it crashed: read traceback and log")
    log = tmp_path / "runs" / "0002" / "dry" / "log.txt"  # log of a dry run
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    refused = attempt(2, Kind.CRASHED, runs=[], dry_run=DryRun(1.0, "ValueError"))
    assert verdict_on(refused, tmp_path).traceback.endswith(CRASH)
    log.write_text("step 1\n")  # the failure was in scoring, whose log is not kept
    assert verdict_on(refused, tmp_path).traceback is None


def test_the_next_step_is_told_whatever_was_decided():
    edit = attempt(2, Kind.WORSE, 2.0, parent=1)
    worse, said = verdict_on(edit), words.verdict_on(night(*BEFORE, edit), edit)
    assert worse.next == "it is not better: try another idea; to begin from the best script: nightshift take t:1"
    assert worse.go_back_with == "nightshift take t:1"
    assert verdict_lines(worse, said, NIGHT)[0] == "worse: 0.750000 worse than its parent (val_bpb 2.000000)"
    unfused = replace(edit, outline=replace(edit.outline, plain=("attend", "softcap")))
    assert any("attend, softcap" in line for line in verdict_lines(verdict_on(unfused), said, NIGHT))
    best = attempt(2, Kind.KEPT, 1.2, parent=1)
    assert verdict_on(best).next == "edit on from here: attempt 2 is the best script now"
    assert (verdict_on(best).go_back_with, verdict_on(best).gain_bpb) == (None, pytest.approx(0.05))
    assert "your edit merged onto attempt 1, is the best script now: take it" in verdict_on(best, merged_onto=1).next


def test_the_commands_after_a_verdict_are_those_that_its_proposer_wants_then(tmp_path):
    rest = ["show t:2", "results t"]
    log = tmp_path / "runs" / "0002" / "seed0" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(CRASH)
    crash = attempt(2, Kind.CRASHED, runs=[Run(0, Ending.CRASHED, 1, 1.0, None, CRASH)])
    for made, commands in (
        (attempt(2, Kind.KEPT, 1.2, parent=1), ["confirm t", "take t:2", *rest]),
        (attempt(2, Kind.LUCK, 1.24, parent=1), ["take t:1", *rest]),
        (crash, ["show t:2 --log", "take t:1", *rest]),
    ):
        assert [*commands_after(verdict_on(made, tmp_path))] == [f"nightshift {command}" for command in commands]
