"""Tables, verdict lines and one attempt in full, as a terminal gets them; tests/cli/wording/ has their words."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from nights import PROJECT
from rich.cells import cell_len
from rich.text import Text
from samples import a_run, attempt, night

from agent.experiment import Ending, Kind
from agent.records.results import read_results, rows_in
from agent.view.screen import folded
from agent.view.terminal import attempt_lines, results_lines, tried_lines, verdict_line


def plain(lines: Iterable[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [60, 110, None])
def test_a_narrow_terminal_gets_fewer_columns(width):
    header, *rows = plain(results_lines(rows_in(read_results(PROJECT / "results.tsv")), width, {}))
    assert all(name in header for name in ("#", "val_bpb", "verdict", "description"))
    assert ("sure" in header) == rows[-1].startswith("sure: ")
    rows = rows[:-1] if "sure" in header else rows
    assert ("reason" in header) == (width is None)
    assert width is None or max(map(cell_len, (header, *rows))) <= width


def test_an_attempt_is_folded_between_words_and_its_paths_can_be_copied():
    folder = Path("/home/someone/a folder/experiments/nights/t/runs/0001") / ("long" * 30)
    words = "provisional: better than its parent by an estimated 0.240000, 96% sure" + " and more" * 9
    shown = attempt(1, Kind.PROVISIONAL, 1.25, "a title " * 20 + "x" * 99, words=words)
    lines = attempt_lines(night(attempt(0, Kind.BASELINE, 1.5), shown), shown, folder)
    lines = plain(part for line in lines for part in folded(line, 60))
    assert f"folder        {folder}" in lines
    assert [line for line in lines if cell_len(line) > 60 and "long" not in line and "xxx" not in line] == []
    assert [line[:12].strip() for line in lines[1:5]] == ["title", "", "", ""]


def test_a_difference_is_that_of_the_scores_as_they_are_shown():
    before = attempt(0, Kind.BASELINE, 1.2345676)  # 1.234568, and 1.234560 for the next: 0.0000072 less
    after = attempt(1, Kind.KEPT, 1.2345604)
    assert " · 0.000008 better · " in verdict_line(night(before, after), after).plain


def test_a_verdict_names_score_gain_and_decision_and_where_these_do_not_say_enough_the_reason():
    first = attempt(0, Kind.BASELINE, 1.5, "baseline")
    for one, line in (
        (first, "#0 · baseline · val_bpb 1.500000 · baseline"),
        (attempt(1, Kind.KEPT, 1.25, "[red]A[/]"), "#1 · [red]A[/] · val_bpb 1.250000 · 0.250000 better · kept"),
        (attempt(3, Kind.CRASHED, words="exit code 1"), "#3 · title · crashed (exit code 1)"),
        (attempt(4, Kind.QUARANTINED, 0.3, words="too good"), "#4 · title · val_bpb 0.300000 · quarantined (too good)"),
    ):
        assert verdict_line(night(first, one), one).plain == line


def test_a_run_that_goes_on_is_not_called_lost():
    shown = attempt(1, None, runs=[a_run(1, None, worker="gpu 1", ending=Ending.RUNNING)])
    for running, word in ((True, "going on"), (False, "lost")):
        lines = plain(attempt_lines(night(shown), shown, None, running=running))
        assert lines[-1] == f"run with seed 1 on gpu 1: {word}"


def test_a_night_ends_with_the_edits_of_the_largest_gains_in_their_order():
    edits = [attempt(at, Kind.WORSE, 1.5, f"edit {at}", gain_bpb=0.01 * ((7 * at) % 30)) for at in range(1, 30)]
    cheat = attempt(30, Kind.FAILED_AUDIT, 0.1)  # a gain that is not believed
    first = attempt(0, Kind.BASELINE, 1.5, seeds=3)
    _, *rows, rest, meaning = plain(tried_lines(night(first, *edits, cheat), 100, room=13))
    numbers = [int(row.split()[0]) for row in rows]
    assert numbers == sorted(numbers)
    assert {(7 * number) % 30 for number in numbers} == set(range(20, 30))
    assert rest == "and 20 more"
    assert meaning.startswith("change: ")
    assert tried_lines(night(first), 80, room=13) == []


def test_the_table_at_the_end_of_a_night_has_lines_that_a_log_has_room_for():
    many = ", ".join(f"SOME_RATE_{at} 0.25 → 0.5" for at in range(8))
    words = "worse than its parent by an estimated 0.038000, <1% sure of a gain"
    record = night(attempt(0, Kind.BASELINE, 1.5), attempt(1, Kind.WORSE, 1.6, many, words=words))
    header, row, _ = plain(tried_lines(record, None, room=13))
    assert "SOME_RATE_0 0.25 → 0.5" in row
    assert max(map(cell_len, (header, row))) <= 100
