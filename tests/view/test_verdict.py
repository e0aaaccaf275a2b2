"""What the author of an edit is told: why, where to read on, and what to do next."""

import dataclasses
import json
from pathlib import Path

import pytest
from judged import scored_attempt
from samples import HISTORY, NIGHT

from agent.experiment import Attempt, Audit, Decision, DryRun, Ending, Kind, Noise, Proposal, Run, Score, Status
from agent.script.merge import Basis
from agent.view.answer import plain
from agent.view.verdict import TriedEdit

SECRET = "the end of the validation text"
CRASH = 'Traceback (most recent call last):\n  File "train_mlx.py", line 3\nValueError: 2 rows of 3'


def verdict(attempt: Attempt, folder: Path = Path("/nowhere"), noise: Noise | None = None) -> TriedEdit:
    return TriedEdit(NIGHT, (*HISTORY[:2], attempt), 2, folder, noise, Basis(1))


def decided(attempt: Attempt, kind: Kind, reason: str = "why") -> Attempt:
    return dataclasses.replace(attempt, decision=Decision(kind, reason))


def ended(run: Run, kind: Kind = Kind.CRASHED, reason: str = "why") -> Attempt:
    return Attempt(2, 1, Proposal("A = 2", "it", "why", "you"), "", "c", (run,), Decision(kind, reason), settled=True)


def trained(score: Score) -> Run:
    return Run(0, Ending.FINISHED, 0, 1.0, None, "the end of training", score)


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        (trained(Score(None, 1.0, f"ValueError: {SECRET}")), Kind.CRASHED, "it trained, but its scoring failed"),
        (trained(Score(1.0, 1.0, None, Audit(9, 9, 1.0, 1.0, 1.0, SECRET))), Kind.FAILED_AUDIT, "it failed the audit"),
    ],
)
def test_the_words_of_a_process_that_has_read_the_validation_text_are_not_told(run, kind, words):
    found = verdict(ended(run, kind, f"crash: {SECRET}"))
    answer = found.answer("t0001", "done")
    assert answer.reason.startswith(words)
    assert answer.traceback is None
    assert SECRET not in f"{json.dumps(plain(answer))} {found.lines()}"


def test_a_crash_of_the_training_is_told_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "runs" / "0002" / "seed0" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    answer = verdict(ended(Run(0, Ending.CRASHED, 1, 1.0, None, CRASH)), tmp_path).answer("t0001", "done")
    assert (answer.traceback, answer.log, answer.run_folder) == (CRASH, str(log), str(log.parent))
    assert answer.next.startswith("it crashed: read traceback and log, repair the script")
    log = tmp_path / "runs" / "0002" / "dry" / "log.txt"  # of a dry run
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    attempt = dataclasses.replace(ended(trained(Score(1.0, 1.0))), runs=(), dry_run=DryRun(1.0, "ValueError"))
    assert verdict(attempt, tmp_path).answer("t0001", "done").traceback.endswith(CRASH)
    log.write_text("step 1\n")  # it broke in scoring, of which there is no log
    assert verdict(attempt, tmp_path).answer("t0001", "done").traceback is None


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.status in (Status.DISCARD, Status.CRASH)])
def test_whatever_was_decided_the_next_step_is_told(kind):
    assert verdict(decided(scored_attempt(2, 2.0, parent=1), kind)).next().endswith("go back with: nightshift take t:1")


def test_the_difference_is_to_the_parent_and_beside_it_stands_how_much_may_be_luck():
    answer = verdict(scored_attempt(2, 1.2, parent=1), noise=Noise(0.01, 4, 0.03)).answer("t0001", "done")
    assert (answer.gain_bpb, answer.noise.smallest_bpb) == (pytest.approx(0.05), 0.03)


def test_an_edit_that_was_merged_is_taken_before_it_is_edited_further():
    best = scored_attempt(2, 1.2, parent=1, status=Status.KEEP)
    words = dataclasses.replace(verdict(best), merged_onto=1).next()
    assert words.startswith("attempt 2, your edit merged onto attempt 1, is the best script now: take it with: ")
    assert " take 2, and edit on from there" in words
