"""Numbers that a script reports itself are shown as it prints them: with their sign, and with the digits that count."""

import re
from dataclasses import replace

import pytest
from samples import a_run, attempt, night

from agent.experiment import Kind, Options, Score
from agent.judging.judges import Greedy
from agent.records.record import Record
from agent.records.results import rows_of
from agent.records.summary import gain_over_baseline, summary_of
from agent.view.page import page
from agent.view.terminal import attempt_lines, tried_lines, verdict_line
from agent.view.words import belief, found_lines


def of_script(metric: str, first: float, then: float, sigma: float) -> Record:
    """A night of one edit, which is kept, of a script that reports this number."""
    scores = [Score(value, 0.0, is_reported=True, is_turned=metric.startswith("-")) for value in (first, then)]
    runs = [replace(a_run(0, None), score=score) for score in scores]
    return night(
        attempt(0, Kind.BASELINE, title="baseline", runs=runs[:1]),
        attempt(1, Kind.KEPT, title="better", runs=runs[1:], sure=0.99),
        sigma_bpb=sigma,
        options=Options(metric=metric),
    )


def everywhere(record: Record) -> dict[str, str]:
    edit = record.attempts[1]
    lines = {"verdict": [verdict_line(record, edit)], "table": tried_lines(record, 200, room=13)}
    lines["show"] = attempt_lines(record, edit, None)
    shown = {view: "\n".join(line.plain for line in of_view) for view, of_view in lines.items()}
    return shown | {"status": "\n".join(found_lines(record, summary_of(record))), "page": page(record)}


@pytest.mark.parametrize(
    ("metric", "first", "then", "shown", "change"),
    [
        ("loss", 3.25e-7, 3e-7, "3e-07", "2.5e-08 better"),
        ("-rows_s", 1.5e8, 2.5e8, "2.5e+08", "1e+08 better"),
        ("-triad_mb_s", 7219.1, 37560.9, "37560.9", "30341.8 better"),
        ("-accuracy", 0.875, 0.9375, "0.9375", "0.0625 better"),
        ("-accuracy", -0.5, 0.0, "0", "0.5 better"),
    ],
)
def test_a_number_has_its_own_sign_and_seven_digits_in_every_view(metric, first, then, shown, change):
    record = of_script(metric, first, then, abs(then - first) / 10)
    assert rows_of(record.night, record.attempts)[1]["val_bpb"] == shown
    for view, words in everywhere(record).items():
        assert shown.replace("-", "−") in words if view == "page" else shown in words, view
        assert not re.search(rf" -{re.escape(shown)}(?![.\d])", words), view
        assert change in words or view in ("table", "status"), view
        assert " lower" not in words.replace("lower is better", ""), view


def test_a_gain_of_a_small_number_is_no_zero():
    record = of_script("loss", 3.25e-7, 3e-7, 0.0)
    assert gain_over_baseline(record, record.attempts[1]).mean_bpb == pytest.approx(2.5e-8)
    assert "gains +2.5e-08" in belief(summary_of(record))
    assert rows_of(record.night, record.attempts)[1]["gain_bpb"] == "2.5e-08"


def test_which_direction_is_better_is_said_beside_the_numbers():
    up, down = of_script("-rows_s", 1.0, 2.0, 0.1), of_script("loss", 2.0, 1.0, 0.1)
    for record, better in ((up, "higher"), (down, "lower")):
        words = everywhere(record)
        for view in ("table", "status", "page"):
            assert f"{better} is better" in words[view], view
    assert "went up from 1 to 2" in everywhere(up)["page"]
    assert "+1 " in everywhere(up)["table"]
    assert "-1 " in everywhere(down)["table"]


def test_a_judge_tells_a_small_gain_in_the_digits_that_count():
    first, edit = of_script("loss", 3.25e-7, 3e-7, 1e-9).attempts
    decision = Greedy().judge(replace(edit, decisions=()), (first,))
    assert (decision.kind, decision.reason) == (Kind.KEPT, "2.5e-08 better than the incumbent")
