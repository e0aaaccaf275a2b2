"""The last screen of `run`: the edits with the largest gains, and whether to believe what was kept."""

import dataclasses

from charted import attempt, findings, night

from agent.experiment import Interval, Kind
from agent.records.summary import summary_of
from agent.view.ending import belief, tried_lines

FIRST = attempt(0, Kind.BASELINE, 1.5, seeds=3)


def test_of_many_edits_those_with_the_largest_gains_are_shown_in_their_order():
    edits = [attempt(at, Kind.WORSE, 1.5, f"edit {at}", gain_bpb=0.01 * ((7 * at) % 30)) for at in range(1, 30)]
    header, *rows, rest = tried_lines([FIRST, *edits], 100)
    numbers = [int(row.split()[0]) for row in rows]
    assert numbers == sorted(numbers)
    assert {(7 * number) % 30 for number in numbers} == set(range(20, 30))
    assert rest == "and 19 further edits"
    assert "gain (+ good)" in header
    assert tried_lines([FIRST], 80) == tried_lines([], 80) == []
    crash, cheat = tried_lines([FIRST, attempt(1, Kind.CRASHED), attempt(2, Kind.FAILED_AUDIT, 0.1)], None)[1:]
    assert (crash.split()[1], cheat.split()[1:3]) == ("crashed", ["failed", "audit"])
    assert "." not in cheat  # its gain is not believed


def test_what_was_kept_is_believed_only_where_runs_train_and_the_interval_is_above_zero():
    clear = summary_of(night(FIRST, attempt(1, Kind.KEPT, 1.2)))
    doubtful = summary_of(night(FIRST, attempt(1, Kind.KEPT, 1.499)))
    nothing = summary_of(night(FIRST, attempt(1, Kind.WORSE, 1.9)))
    short = dataclasses.replace(clear, noise=dataclasses.replace(clear.noise, doubt="its runs have 9 steps"))
    honest = dataclasses.replace(clear, dawn=findings(Interval(0.2, 0.1, 0.3), champion=1))
    answers = [belief(one).removeprefix("Believe it? ") for one in (clear, doubtful, nothing, short, honest)]
    assert [answer.split()[0] for answer in answers] == ["Probably:", "Not", "Nothing", "No:", "By"]
