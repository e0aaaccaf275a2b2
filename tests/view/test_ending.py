"""The last screen of `run`: a bar for each edit, whether to believe what was kept, and the commands that come next."""

import dataclasses

import pytest
from charted import findings
from judged import scored_attempt
from rich.cells import cell_len
from samples import HISTORY, NIGHT

from agent.experiment import Attempt, Decision, Kind, Status
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.records.record import Record
from agent.records.summary import NightSummary, summary_of
from agent.view.ending import BAR, BEYOND, SHADE, belief, tried_lines

NOISE_BPB = 0.1


def edit(number: int, kind: Kind, gain_bpb: float | None, title: str = "an edit") -> Attempt:
    scores = () if gain_bpb is None else (1.5 - gain_bpb,)
    made = scored_attempt(number, *scores, parent=0, kind=kind, title=title)
    return dataclasses.replace(made, decision=Decision(kind, "why", gain_bpb, 0.9))


def bars(*gains_bpb: float, columns: int = 100) -> list[tuple[int, int]]:
    """Return how many cells of each bar are to the left and to the right of zero."""
    edits = [edit(number, Kind.WORSE, gain) for number, gain in enumerate(gains_bpb, start=1)]
    lines = [line.plain.partition("│") for line in tried_lines([HISTORY[0], *edits], NOISE_BPB, columns)]
    return [(left.count(BAR) + left.count(BEYOND), right.count(BAR)) for left, _, right in lines]


def test_a_bar_is_as_long_as_the_gain_and_a_loss_goes_to_the_other_side():
    (_, half), (_, whole), (loss, none) = bars(0.2, 0.4, -0.2)
    assert whole in (2 * half - 1, 2 * half, 2 * half + 1)
    assert abs(loss - half) <= 1
    assert none == 0


def test_a_great_loss_leaves_room_for_the_gains_and_is_marked_as_cut():
    (_, gain), (loss, _) = bars(0.2, -50.0)
    assert gain >= loss >= 5
    last = tried_lines([HISTORY[0], edit(1, Kind.WORSE, -50.0)], NOISE_BPB, 100)[0].plain
    assert BEYOND in last


def test_the_shade_is_as_wide_as_two_runs_differ_by_luck():
    line = tried_lines([HISTORY[0], edit(1, Kind.KEPT, 4 * NOISE_BPB), edit(2, Kind.LUCK, 0.0)], NOISE_BPB, 100)
    kept, luck = (one.plain.partition("│")[2] for one in line)
    assert kept.count(BAR) in range(4 * luck.count(SHADE) - 4, 4 * luck.count(SHADE) + 5)
    assert luck.count(BAR) == 0


def test_an_edit_without_a_score_or_with_one_that_is_not_believed_has_no_bar():
    night = [HISTORY[0], edit(1, Kind.CRASHED, None), edit(2, Kind.FAILED_AUDIT, 1.4)]
    for line, kind in zip(tried_lines(night, NOISE_BPB, 100), ("crashed", "failed audit"), strict=True):
        assert kind in line.plain
        assert BAR not in line.plain


def test_of_many_edits_those_with_the_largest_gains_are_shown_in_their_order():
    edits = [edit(number, Kind.WORSE, 0.01 * ((7 * number) % 30)) for number in range(1, 30)]
    *rows, rest = [line.plain for line in tried_lines([HISTORY[0], *edits], NOISE_BPB, 100)]
    numbers = [int(row.split()[0][1:]) for row in rows]
    assert numbers == sorted(numbers)
    assert {(7 * number) % 30 for number in numbers} == set(range(20, 30))
    assert "19 further edits" in rest


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_every_line_fits_into_the_terminal_whatever_the_title(columns):
    edits = [edit(1, Kind.PROVISIONAL, 0.3, "DEPTH 4 → 3, " * 9), edit(2, Kind.KEPT, -0.3, "深さ" * 40)]
    for line in tried_lines([HISTORY[0], *edits], NOISE_BPB, columns):
        assert cell_len(line.plain) <= columns


def test_a_night_without_an_edit_and_one_without_noise_are_drawn_as_well():
    assert tried_lines([HISTORY[0]], NOISE_BPB, 80) == []
    assert tried_lines([], None, 80) == []
    for gain in (0.0, 0.1, -0.1):
        assert len(tried_lines([HISTORY[0], edit(1, Kind.WORSE, gain)], None, 80)) == 1


# ---- whether to believe it -------------------------------------------------------------------------------------------


def standing(*history: Attempt) -> NightSummary:
    return summary_of(Record(NIGHT, tuple(history), noise=noise(history)))


def test_what_was_kept_is_believed_only_where_runs_train_and_the_interval_is_above_zero():
    baseline = scored_attempt(0, 1.50, 1.51, 1.49, status=Status.KEEP)
    clear = standing(baseline, scored_attempt(1, 1.2, 1.21, parent=0, status=Status.KEEP))
    doubtful = standing(baseline, scored_attempt(1, 1.49, 1.50, parent=0, status=Status.KEEP))
    nothing = standing(baseline, scored_attempt(1, 1.9, parent=0))
    short = dataclasses.replace(clear, noise=dataclasses.replace(clear.noise, doubt="its runs have 9 steps"))
    honest = dataclasses.replace(clear, dawn=findings(Interval(0.2, 0.1, 0.3), champion=1))
    answers = [belief(night).removeprefix("Believe it? ") for night in (clear, doubtful, nothing, short, honest)]
    assert [answer.split()[0] for answer in answers] == ["Probably:", "Not", "Nothing", "No:", "By"]
    assert f"No: in {NIGHT.budget_s:g} s the baseline hardly trains (its runs have 9 steps), and " in answers[3]
