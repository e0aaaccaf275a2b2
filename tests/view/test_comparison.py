"""Two attempts are compared with honest caution: by their own runs at dawn, by the noise, or not at all."""

from dataclasses import replace

import pytest
from charted import a_run, an_attempt, night

from agent.experiment import Kind, Score
from agent.view.comparison import Side, compared, rows

FIRST = an_attempt(*(a_run(seed, bpb) for seed, bpb in enumerate((1.20, 1.21, 1.19))), number=0)
BETTER = an_attempt(*(a_run(seed, bpb) for seed, bpb in enumerate((1.10, 1.11, 1.09))), number=1)
ONE_RUN = an_attempt(a_run(0, 1.185), number=2)


def beside(a=FIRST, b=BETTER, sigma_bpb=0.01, **other):
    record = night(a, b, sigma_bpb=sigma_bpb)
    return compared(Side(record, a), Side(night(a, b, **{"sigma_bpb": sigma_bpb} | other), b))


def test_the_noise_of_the_night_gives_the_interval():
    comparison, half = beside(), 1.96 * 0.01 * (1 / 3 + 1 / 3) ** 0.5
    assert (comparison.gain.mean_bpb, comparison.gain.low_bpb) == pytest.approx((0.1, 0.1 - half), abs=1e-5)
    back = beside(BETTER, FIRST)
    assert (comparison.winner, back.winner) == ("b", "a")
    for answer in (comparison, back):
        assert answer.sentence.startswith("#1 of t is better than #0 of t: it gains +0.100000 [+0.08")
        assert answer.sentence.endswith("; a night chooses by such scores, which flatters what it kept")


def test_a_single_run_may_leave_it_open():
    comparison = beside(FIRST, ONE_RUN)
    half = 1.96 * 0.01 * (1 + 1 / 3) ** 0.5
    assert (comparison.winner, comparison.gain.high_bpb) == (None, pytest.approx(0.015 + half, abs=1e-5))
    assert comparison.sentence.startswith("no difference is certain: #2 of t gains +0.015000 [-0.007632, ")


def test_runs_at_the_same_dawn_come_before_those_that_the_night_chose_by():
    runs = [a_run(1000 + seed, 1.15 + seed / 1000, dawn=1) for seed in range(3)]
    first = an_attempt(*FIRST.runs, *(replace(run, score=Score(run.val_bpb + 0.05, 5.0)) for run in runs), number=0)
    comparison = beside(first, an_attempt(*BETTER.runs, *runs, number=1))
    assert comparison.gain.mean_bpb == pytest.approx(0.05)
    assert comparison.sentence.endswith("by runs at dawn, with seeds that no choice has seen")


CRASHED = an_attempt(number=1, kind=Kind.CRASHED, words="exit code 1: no")
CHEAT = an_attempt(*BETTER.runs, number=1, kind=Kind.FAILED_AUDIT, words="audit: 3 of 256 losses")


@pytest.mark.parametrize(
    ("attempt", "facts", "winner", "words"),
    [
        (BETTER, {"protocol": "def"}, None, "not comparable: #0 of t has protocol pppppppppppp, #1"),
        (BETTER, {"device": "another Mac"}, "b", "; they ran on different devices, and a faster one comes"),
        (CRASHED, {}, None, "nothing to compare: #1 of u has no score (exit code 1: no)"),
        (CHEAT, {}, None, "no verdict: the score of #1 of u is not believed (audit: 3 of 256 losses)"),
        (BETTER, {"sigma_bpb": None}, None, "how much of the difference is chance is not known"),
    ],
)
def test_what_does_not_compare_is_not_compared(attempt, facts, winner, words):
    comparison = beside(FIRST, attempt, tag="u", **facts)
    assert comparison.winner == winner
    assert words in comparison.sentence


def test_what_differs_is_named_with_both_values():
    record = night(FIRST, BETTER)
    a, b = Side(record, FIRST, {"DEPTH": 4, "LR": 0.1}), Side(record, BETTER, {"LR": 0.2, "DEPTH": 4, "NEW": 1})
    comparison = compared(a, b)
    assert comparison.dials == {"LR": (0.1, 0.2), "NEW": (None, 1)}
    shown = rows(a, b, comparison.dials)
    assert shown[-2:] == [("LR", "0.1", "0.2"), ("NEW", "none", "1")]
    assert not {"device", "source", "protocol"} & {name for name, *_ in shown}  # they are alike
