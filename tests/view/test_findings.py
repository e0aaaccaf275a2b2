"""Dawn's findings are told to people with the next command."""

from dataclasses import replace

import pytest
from judged import findings, scored_attempt
from samples import NIGHT

from agent.experiment import Status
from agent.judging.intervals import Interval
from agent.records.record import Record
from agent.view.findings import findings_lines, runs_to_tell
from agent.view.words import dawn_line

HISTORY = [
    scored_attempt(0, 1.0, 1.01, status=Status.KEEP, dawn=(1.0, 1.001, 0.999, 1.0)),
    scored_attempt(1, 0.9, parent=0, status=Status.KEEP, dawn=(0.9, 0.901, 0.899, 0.9)),
]
FOUND = findings(HISTORY)
assert FOUND is not None


def last_lines(honest: Interval | None, *, is_branch_there: bool = False) -> list[str]:
    assert FOUND is not None
    found = replace(FOUND, honest=honest, script=None, passengers=())
    lines = findings_lines(found, HISTORY, NIGHT, is_branch_there=is_branch_there)
    ends = ("NOT confirmed", "not confirmed")
    return lines[next(i for i, line in enumerate(lines) if line.strip().startswith(ends)) :]


def test_where_the_champion_is_one_edit_its_gain_is_told_once():
    """With two lines, "it stays" would stand above "NOT confirmed"."""
    assert FOUND is not None
    edit = replace(FOUND.edits[0], runs=2)
    found = replace(FOUND, edits=(edit,), passengers=())
    assert not any("#1 brings" in line for line in findings_lines(found, HISTORY, NIGHT, is_branch_there=False))
    two = replace(found, edits=(edit, replace(edit, number=0)))
    assert any("#1 brings" in line for line in findings_lines(two, HISTORY, NIGHT, is_branch_there=False))


def test_what_is_worse_than_the_baseline_sends_back_to_it():
    assert last_lines(Interval(-0.03, -0.05, -0.01)) == [
        "  NOT confirmed: on fresh seeds #1 gains -0.030000 [-0.050000, -0.010000] over the baseline, which is none; "
        "no branch is made",
        "  it is worse than the baseline; go back to that with: git restore -s refs/experiments/t/0000 train_mlx.py",
    ]


def test_a_gain_that_more_runs_may_tell_says_how_many():
    told = last_lines(Interval(0.02, -0.01, 0.05))
    assert "[-0.010000, +0.050000] over the baseline, which may be none at all; no branch is made" in told[0]
    assert told[1] == "  if the gain is real, about 10 more runs will show it: nightshift confirm t --runs 10"
    assert told[2].startswith("  until then the baseline may be as good, and it is simpler: git restore -s ")


@pytest.mark.parametrize("mean", [0.001, 0.0, -0.001])
def test_where_many_more_runs_would_hardly_tell_other_ways_are_named(mean):
    told = last_lines(Interval(mean, mean - 0.1, mean + 0.1))
    assert told[1].startswith("  runs like these will hardly tell it from zero: look for larger gains with nightshift")


def test_a_branch_of_an_earlier_dawn_is_called_that():
    told = last_lines(Interval(0.02, -0.01, 0.05), is_branch_there=True)
    assert told[1] == "  experiments/30s-t-confirmed stays as an earlier dawn left it"


def test_too_few_runs_are_no_verdict():
    assert last_lines(None) == ["  not confirmed yet: too few runs; go on with: nightshift confirm t"]


def test_an_interval_shrinks_with_the_root_of_its_runs():
    assert runs_to_tell(Interval(0.01, -0.01, 0.03), 8) == 24  # half as wide with four times as many
    assert runs_to_tell(Interval(0.01, 0.0, 0.02), 8) == 8
    assert runs_to_tell(Interval(-0.01, -0.03, 0.01), 8) is None


def test_status_tells_of_the_latest_dawn():
    record = Record(replace(NIGHT, branch="experiments/30s-t"), tuple(HISTORY))
    assert FOUND is not None
    assert dawn_line(FOUND, record) == (
        f"dawn: confirmed #1 {HISTORY[1].title}, on experiments/30s-t-confirmed, an honest gain of "
        "+0.100000 [+0.098587, +0.101413]"
    )
    no_gain = replace(FOUND, script=None, honest=Interval(0.0, -0.1, 0.1))
    assert dawn_line(no_gain, record) == "dawn: #1 is not confirmed (a gain of +0.000000 [-0.100000, +0.100000])"
    assert dawn_line(replace(no_gain, honest=None), record) == "dawn: #1 is not confirmed (too few runs)"
