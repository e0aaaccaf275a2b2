"""Dawn's findings are told to people with the next command."""

from dataclasses import replace

import pytest
from judged import findings, scored_attempt
from samples import NIGHT

from agent.experiment import Interval, Status
from agent.records.record import Record
from agent.view.findings import findings_lines, runs_to_tell
from agent.view.words import dawn_line

HISTORY = [
    scored_attempt(0, 1.0, 1.01, status=Status.KEEP, dawn=(1.0, 1.001, 0.999, 1.0)),
    scored_attempt(1, 0.9, parent=0, status=Status.KEEP, dawn=(0.9, 0.901, 0.899, 0.9)),
]
FOUND = findings(HISTORY)


@pytest.mark.parametrize(
    ("honest", "words"),
    [
        (None, "not confirmed yet: too few runs; go on with: nightshift confirm t"),
        (Interval(-0.03, -0.05, -0.01), "it is worse than the baseline; go back to that with: git restore -s refs/exp"),
        (Interval(0.02, -0.01, 0.05), "about 10 more runs will show it: nightshift confirm t --runs 10"),
        (Interval(0.001, -0.1, 0.1), "runs like these will hardly tell it from zero: look for larger gains with night"),
        (Interval(0.02, -0.01, 0.05), "experiments/30s-t-confirmed stays as an earlier dawn left it"),
    ],
)
def test_a_gain_that_is_not_confirmed_comes_with_what_to_do(honest, words):
    found = replace(FOUND, honest=honest, script=None, passengers=())
    assert words in "\n".join(findings_lines(found, HISTORY, NIGHT, is_branch_there=True))


def test_an_interval_shrinks_with_the_root_of_its_runs():
    assert runs_to_tell(Interval(0.01, -0.01, 0.03), 8) == 24  # half as wide with four times as many
    assert runs_to_tell(Interval(-0.01, -0.03, 0.01), 8) is None


def test_status_tells_of_the_latest_dawn():
    record = Record(replace(NIGHT, branch="experiments/30s-t"), tuple(HISTORY))
    told = f"dawn: confirmed #1 {HISTORY[1].title}, on experiments/30s-t-confirmed, an honest gain of +0.100000 [+0.09"
    assert dawn_line(FOUND, record).startswith(told)
    no_gain = replace(FOUND, script=None, honest=Interval(0.0, -0.1, 0.1))
    assert dawn_line(no_gain, record) == "dawn: #1 is not confirmed (a gain of +0.000000 [-0.100000, +0.100000])"
