"""What the author of an edit is told: why, where to read on, and what to do next."""

import dataclasses
import json
from pathlib import Path

import pytest
from judged import scored_attempt
from samples import HISTORY, NIGHT

from agent.experiment import Attempt, Audit, Decision, DryRun, Ending, Kind, Proposal, Run, Score, Status
from agent.records.record import Record
from agent.view.answer import TryAnswer, plain
from agent.view.verdict import answer_of_try, verdict_lines

SECRET = "the end of the validation text"
CRASH = 'Traceback (most recent call last):\n  File "train_mlx.py", line 3\nValueError: 2 rows of 3'


def verdict_on(attempt: Attempt, folder: Path = Path("/nowhere"), merged_onto: int | None = None) -> TryAnswer:
    return answer_of_try("t0001", Record(NIGHT, (*HISTORY[:2], attempt)), attempt, folder, merged_onto)


def ended(run: Run, kind: Kind = Kind.CRASHED, reason: str = "why") -> Attempt:
    return Attempt(
        2, 1, Proposal("A = 2", "it", "why", "you"), "", "c", (run,), (Decision(kind, reason),), settled=True
    )


def trained(score: Score) -> Run:
    return Run(0, Ending.FINISHED, 0, 1.0, None, "the end of training", score)


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        (trained(Score(None, 1.0, f"ValueError: {SECRET}")), Kind.CRASHED, "it trained, but its scoring failed"),
        (trained(Score(1.0, 1.0, None, Audit(9, 1.0, 1.0, SECRET))), Kind.FAILED_AUDIT, "it failed the audit"),
    ],
)
def test_the_words_of_a_process_that_has_read_the_validation_text_are_not_told(run, kind, words):
    answer = verdict_on(ended(run, kind, f"crash: {SECRET}"))
    assert answer.reason.startswith(words)
    assert (answer.traceback, answer.gain_bpb) == (None, None)
    assert SECRET not in f"{json.dumps(plain(answer))} {verdict_lines(answer)}"


def test_a_crash_of_the_training_is_told_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "runs" / "0002" / "seed0" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    answer = verdict_on(ended(Run(0, Ending.CRASHED, 1, 1.0, None, CRASH)), tmp_path)
    assert (answer.traceback, answer.log) == (CRASH, str(log))
    assert answer.next.startswith("it crashed: read traceback and log")
    log = tmp_path / "runs" / "0002" / "dry" / "log.txt"  # of a dry run
    log.parent.mkdir(parents=True)
    log.write_text(f"step 1\n{CRASH}\n")
    attempt = dataclasses.replace(ended(trained(Score(1.0, 1.0))), runs=(), dry_run=DryRun(1.0, "ValueError"))
    assert verdict_on(attempt, tmp_path).traceback.endswith(CRASH)
    log.write_text("step 1\n")  # it broke in scoring, of which there is no log
    assert verdict_on(attempt, tmp_path).traceback is None


def test_the_next_step_is_told_whatever_was_decided():
    worse = verdict_on(scored_attempt(2, 2.0, parent=1))
    assert worse.next == "it is not better: try another idea; go back with: nightshift take t:1"
    assert worse.go_back_with == "nightshift take t:1"
    best = scored_attempt(2, 1.2, parent=1, status=Status.KEEP)
    assert (verdict_on(best).next, verdict_on(best).go_back_with) == (
        "edit on from here: attempt 2 is the best script now",
        None,
    )
    assert verdict_on(best).gain_bpb == pytest.approx(0.05)
    merged = verdict_on(best, merged_onto=1).next
    assert merged.startswith("attempt 2, your edit merged onto attempt 1, is the best script now: take it with: ")
