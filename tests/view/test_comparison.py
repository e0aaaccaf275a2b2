"""Two of a night, or two nights, are compared with honest caution: by their own runs, by the noise, or not at all."""

from dataclasses import replace

import pytest
from charted import findings
from facts import a_night, a_run, an_attempt

from agent.experiment import Kind, Score
from agent.judging.intervals import Interval
from agent.view.comparison import Side, Winner, attempts_compared, nights_compared

FIRST = an_attempt(*(a_run(seed, bpb) for seed, bpb in enumerate((1.20, 1.21, 1.19))), number=0)
BETTER = an_attempt(*(a_run(seed, bpb) for seed, bpb in enumerate((1.10, 1.11, 1.09))), number=1)
ONE_RUN = an_attempt(a_run(0, 1.185), number=2)
NIGHT = a_night(FIRST, BETTER, ONE_RUN)


def compared(a=FIRST, b=BETTER, night=NIGHT, other=None):
    return attempts_compared(Side(night, a), Side(other or night, b))


def test_the_noise_of_the_night_gives_the_interval_as_it_does_in_status():
    found = compared()
    half = 1.96 * 0.01 * (1 / 3 + 1 / 3) ** 0.5
    assert (found.gain.mean_bpb, found.gain.low_bpb) == pytest.approx((0.1, 0.1 - half), abs=1e-5)
    assert found.sentence.endswith("by 3 runs each and the noise of the night)")


def test_where_the_noise_is_not_known_their_own_scores_give_the_interval():
    found = compared(night=a_night(FIRST, BETTER, sigma_bpb=None))
    # Welch by hand: 0.1 ± t(4) · sqrt(2 · 0.01² / 3), t(4) = 2.776
    assert (found.gain.mean_bpb, found.gain.low_bpb) == pytest.approx((0.1, 0.1 - 2.776 * 0.008165), abs=1e-5)
    assert found.winner is Winner.B
    assert found.sentence == "#1 is better than #0 by 0.100000 bpb (95 %: +0.077330 to +0.122670, by 3 runs each)"
    back = compared(BETTER, FIRST, a_night(FIRST, BETTER, sigma_bpb=None))
    assert back.winner is Winner.A
    assert back.sentence == found.sentence
    assert {line.name: line.change for line in found.lines}["val_bpb"] == "gain +0.100000"


def test_a_single_run_is_compared_by_the_noise_of_the_night_which_may_leave_it_open():
    found = compared(FIRST, ONE_RUN)
    half = 1.96 * 0.01 * (1 + 1 / 3) ** 0.5
    assert (found.gain.mean_bpb, found.gain.high_bpb) == pytest.approx((0.015, 0.015 + half), abs=1e-5)
    assert found.winner is Winner.OPEN
    assert found.sentence.startswith(
        "no difference is certain: B scores 0.015000 bpb lower than A (95 %: -0.007632 to "
    )
    assert "by 3 runs of A, 1 of B and the noise of the night" in found.sentence
    back = compared(ONE_RUN, FIRST)
    assert back.sentence.startswith("no difference is certain: A scores 0.015000 bpb lower than B (95 %: -0.007632 to ")
    assert compared(FIRST, ONE_RUN, a_night(FIRST, ONE_RUN, sigma_bpb=None)).winner is Winner.UNKNOWN


def test_runs_at_the_same_dawn_come_before_those_that_the_night_chose_by():
    runs = [a_run(1000 + seed, 1.15 + seed / 1000, dawn=1) for seed in range(3)]
    lucky = an_attempt(*BETTER.runs, *runs, number=1)
    first = an_attempt(*FIRST.runs, *(replace(run, score=Score(run.val_bpb + 0.05, 5.0)) for run in runs), number=0)
    found = compared(first, lucky)
    assert found.gain.mean_bpb == pytest.approx(0.05)
    assert "by 3 runs each at dawn, with seeds that no choice has seen" in found.sentence


def test_a_kept_attempt_beside_one_that_is_not_comes_with_a_word_of_caution():
    loser = an_attempt(*BETTER.runs, number=3, kind=Kind.WORSE)
    assert "the night chose by these scores, which flatters what it kept" in compared(loser, FIRST).sentence
    assert "chose" not in compared().sentence


@pytest.mark.parametrize(
    ("attempt", "night", "winner", "words"),
    [
        (BETTER, {"protocol": "def"}, Winner.NOT_COMPARABLE, "not comparable: #0 of t has protocol abc, #1 of u has d"),
        (BETTER, {"device": "another Mac"}, Winner.B, "; they ran on different devices, and a faster one comes"),
        (
            an_attempt(number=1, kind=Kind.CRASHED, words="exit code 1: no"),
            {},
            Winner.NO_SCORE,
            "nothing to compare: #1 of u has no score (exit code 1: no)",
        ),
        (
            an_attempt(*BETTER.runs, number=1, kind=Kind.FAILED_AUDIT, words="audit: 3 of 256 losses"),
            {},
            Winner.NOT_BELIEVED,
            "no verdict: the score of #1 of u is not believed (audit: 3 of 256 losses)",
        ),
    ],
)
def test_what_does_not_compare_is_not_compared(attempt, night, winner, words):
    found = compared(FIRST, attempt, other=a_night(attempt, tag="u", **night))
    assert found.winner is winner
    assert words in found.sentence


def test_dials_that_differ_are_named_with_both_values():
    a, b = Side(NIGHT, FIRST, {"DEPTH": 4, "LR": 0.1}, "x"), Side(NIGHT, BETTER, {"LR": 0.2, "DEPTH": 4, "NEW": 1}, "y")
    found = attempts_compared(a, b)
    assert found.dials == {"LR": (0.1, 0.2), "NEW": (None, 1)}
    assert [(line.name, line.a, line.b) for line in found.lines[-3:]] == [
        ("LR", "0.1", "0.2"),
        ("NEW", "none", "1"),
        ("code", "", "differs, too: see --diff"),
    ]


def test_nights_are_compared_by_their_best_scripts_and_a_choice_among_many_is_called_luck_in_part():
    honest = findings(Interval(0.08, 0.06, 0.10), champion=1)
    other = a_night(FIRST, tag="u")
    found = nights_compared(a_night(FIRST, BETTER, dawn=honest), other)
    assert found.winner is Winner.A
    assert found.sentence.startswith("#1 of t is better than #0 of u by 0.100000 bpb (95 %: +0.083997 to +0.116003, by")
    assert found.sentence.endswith("; the best score of 1 attempt is luck in part")
    lines = {line.name: (line.a, line.b) for line in found.lines}
    assert lines["recorded gain"] == ("+0.100000", "+0.000000")
    assert lines["honest gain"] == ("+0.080000 ± 0.020000", "")
    assert [lines[name] for name in ("ideas", "kept", "discarded")] == [("1", "0"), ("1", "0"), ("0", "0")]
    assert lines["time for training"] == ("30 min", "15 min")
    assert nights_compared(a_night(FIRST), a_night(tag="u")).sentence == "night u has kept nothing yet"
