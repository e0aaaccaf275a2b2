"""Tables, verdict lines and one attempt in full, as a terminal and a pipe get them."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
from charted import attempt, night
from judged import scored_attempt
from rich.cells import cell_len
from rich.text import Text
from samples import HISTORY, NIGHT, put

from agent.experiment import Decision, Ending, Kind, Status
from agent.records.record import Record
from agent.records.results import read_rows
from agent.records.summary import Share
from agent.view.terminal import attempt_lines, failure_lines, results_lines, tried_lines, verdict

REASON = "provisional: an estimated 0.240000 below its parent, 96% sure"
JUDGED = scored_attempt(1, 1.25, parent=0, title="MLP_RATIO 4 → 3, BATCH_ROWS 16 → 32, SOFTCAP 15.0 → 22.21")
JUDGED = dataclasses.replace(JUDGED, decisions=(Decision(Kind.PROVISIONAL, REASON, 0.24, 1.4e-198),))
FOLDER = Path("/home/someone/a folder/experiments/nights/t/runs/0001") / ("long" * 30)


def plain(lines: Iterable[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [40, 120, None])
def test_a_narrow_terminal_gets_fewer_columns(tmp_path, width):
    put(tmp_path / "results.tsv", (NIGHT, [HISTORY[0], JUDGED, HISTORY[2]]))
    header, _, row, crash = plain(results_lines(read_rows(tmp_path / "results.tsv"), width))
    assert all(name in header for name in ("#", "val_bpb", "status", "description"))
    assert ("reason" in header) == (width != 40)
    if width is None:
        assert all(words in row for words in (REASON, JUDGED.title, "+0.240000", "<1%"))
    else:
        assert max(map(cell_len, (header, row, crash))) <= max(width, 59)


def test_an_attempt_is_told_in_full_and_a_terminal_gets_it_folded_between_words_and_paths_that_can_be_copied():
    proposal = dataclasses.replace(JUDGED.proposal, hypothesis="It overshoots late in training. " * 9 + "x" * 99)
    revoked = Decision(Kind.REVOKED, "revoked: luck", id=2, at="2026-01-02T03:04:05.678Z")
    shown = dataclasses.replace(JUDGED, proposal=proposal, decisions=(revoked, JUDGED.decision))
    merge = dataclasses.replace(HISTORY[2], proposal=dataclasses.replace(HISTORY[2].proposal, merges=1))
    record = Record(NIGHT, (HISTORY[0], shown, merge))
    piped = plain(attempt_lines(record, shown, FOLDER))
    gain = "gain        +0.240000 over its parent"
    before = "before      2026-01-02 03:04:05 UTC revoked: revoked: luck"
    for line in (f"folder      {FOLDER}", f"decision    keep: {REASON}", before, gain, "sure        <1%"):
        assert line in piped
    assert "merged as   #2" in piped
    lines = plain(attempt_lines(record, shown, FOLDER, 60))
    assert f"folder      {FOLDER}" in lines
    assert all(cell_len(line) <= 60 for line in lines if "long" not in line and "xxx" not in line)
    at = next(number for number, line in enumerate(lines) if line.startswith("hypothesis"))
    assert [line[:12].strip() for line in lines[at : at + 5]] == ["hypothesis", "", "", "", ""]


def test_a_difference_is_that_of_the_scores_as_they_are_shown(tmp_path):
    before = scored_attempt(0, 1.2345676, status=Status.KEEP)  # 1.234568, and 1.234560 for the next: 0.0000072 less
    after = dataclasses.replace(scored_attempt(1, 1.2345604, parent=0, status=Status.KEEP), commit="d")
    assert " · gain +0.000008 · " in verdict(after, before).plain
    put(tmp_path / "results.tsv", (NIGHT, [before, after]))
    assert " +0.000008 " in plain(results_lines(read_rows(tmp_path / "results.tsv")))[2]


def test_a_verdict_names_score_gain_and_decision_and_where_these_do_not_say_enough_the_reason():
    first = attempt(0, Kind.BASELINE, 1.5, "baseline")
    for one, line in (
        (first, "#0 · baseline · val_bpb 1.500000 · keep"),
        (attempt(1, Kind.KEPT, 1.25, "[red]A[/]"), "#1 · [red]A[/] · val_bpb 1.250000 · gain +0.250000 · keep"),
        (attempt(2, Kind.WORSE, 1.75), "#2 · title · val_bpb 1.750000 · gain -0.250000 · discard"),
        (attempt(3, Kind.CRASHED, words="exit code 1"), "#3 · title · crash (exit code 1)"),
        (JUDGED, f"#1 · {JUDGED.title} · val_bpb 1.250000 · gain +0.240000 · keep ({REASON})"),
        (attempt(4, Kind.QUARANTINED, 0.3, words="too good"), "#4 · title · val_bpb 0.300000 · discard (too good)"),
    ):
        assert verdict(one, first if one.number else None).plain == line


def test_a_run_names_its_worker_and_one_that_goes_on_is_not_called_lost():
    done = dataclasses.replace(HISTORY[3].runs[0], worker="gpu 0")
    going_on = dataclasses.replace(done, seed=1, worker="gpu 1", ending=Ending.RUNNING)
    shown = dataclasses.replace(HISTORY[3], runs=(done, going_on))
    for running, word in ((True, "going on"), (False, "lost")):
        lines = plain(attempt_lines(Record(NIGHT, HISTORY), shown, FOLDER, running=running))
        assert [line for line in lines if line.startswith("run with")] == [
            "run with seed 0 on gpu 0: finished, 31.5 s, val_bpb 1.750000",
            f"run with seed 1 on gpu 1: {word}",
        ]


def test_a_night_ends_with_the_edits_of_the_largest_gains_in_their_order():
    edits = [attempt(at, Kind.WORSE, 1.5, f"edit {at}", gain_bpb=0.01 * ((7 * at) % 30)) for at in range(1, 30)]
    cheat = attempt(30, Kind.FAILED_AUDIT, 0.1)  # whose gain is not believed
    first = attempt(0, Kind.BASELINE, 1.5, seeds=3)
    header, *rows, rest = plain(tried_lines(night(first, *edits, cheat), 100))
    numbers = [int(row.split()[0]) for row in rows]
    assert numbers == sorted(numbers)
    assert {(7 * number) % 30 for number in numbers} == set(range(20, 30))
    assert rest == "and 20 more"
    assert "gain (+ good)" in header
    assert tried_lines(night(first), 80) == []


def test_a_source_whose_calls_fail_says_why_in_a_harmless_line():
    failed = Share("llm", 0, 0, 0.0, 0.1, 3, 2, 9, 9, 0.1, last_failure="no line there is\n\x1b[2J")
    fine = Share("search", 4, 1, 0.1, 0.1, 0, 0, None, None, None)
    assert failure_lines([failed, fine]) == [r"llm: 2 of 3 calls failed, the last because no line there is \x1b[2J"]
