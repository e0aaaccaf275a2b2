"""Two attempts are compared with honest caution: by their own confirmation runs, by the noise, or not at all."""

from dataclasses import replace

import pytest
from samples import a_run, attempt, night

from agent.experiment import Kind, Outline
from agent.view.answer import Measured
from agent.view.comparison import Side, compared
from agent.view.terminal import measured_facts

FIRST = attempt(0, Kind.BASELINE, 1.20, seeds=3)
BETTER = attempt(1, Kind.KEPT, 1.10, seeds=3)


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


def test_runs_of_the_same_confirmation_come_before_those_that_the_night_chose_by():
    better = [a_run(1000 + seed, 1.15 + seed / 1000, confirmation=1) for seed in range(3)]
    first = [a_run(1000 + seed, 1.20 + seed / 1000, confirmation=1) for seed in range(3)]
    pair = (replace(at, runs=(*at.runs, *runs)) for at, runs in ((FIRST, first), (BETTER, better)))
    comparison = beside(*pair)
    assert comparison.gain.mean_bpb == pytest.approx(0.05)
    assert comparison.by == "confirmation runs on fresh seeds"


@pytest.mark.parametrize(
    ("b", "facts", "winner", "words"),
    [
        (attempt(1, Kind.WORSE, 1.185), {}, None, "no difference is certain: #1 of u gains +0.015000 [-0.007632, "),
        (BETTER, {"protocol": "def"}, None, "not comparable: #0 of t has protocol pppppppppppp, #1"),
        (BETTER, {"device": "another Mac"}, "b", "; they ran on different devices, and a faster one trains"),
        (attempt(1, Kind.CRASHED, words="exit code 1: no"), {}, None, "#1 of u has no score (exit code 1: no)"),
        (attempt(1, Kind.FAILED_AUDIT, 0.2, words="audit"), {}, None, "the score of #1 of u is not believed (audit)"),
        (BETTER, {"sigma_bpb": None}, None, "the noise is not known"),
    ],
)
def test_what_does_not_compare_or_may_be_chance_has_no_winner(b, facts, winner, words):
    comparison = beside(FIRST, b, tag="u", **facts)
    assert comparison.winner == winner
    assert words in comparison.sentence


def test_no_gain_is_told_of_a_score_that_is_not_believed():
    doubted = attempt(1, Kind.QUARANTINED, 0.3)
    assert beside(FIRST, doubted).gain is None
    assert measured_facts(night(FIRST, doubted), doubted)["gain"] == ""
    assert measured_facts(night(FIRST, BETTER), BETTER)["gain"].startswith("+0.1")


def test_operations_that_an_edit_has_taken_from_their_kernels_are_said():
    slower = replace(BETTER, outline=Outline(plain=("softcap", "attend")))
    record = night(FIRST, slower)
    assert "softcap, attend" in measured_facts(record, slower)["plain"]
    assert measured_facts(record, FIRST)["plain"] == ""
    assert Measured.of(record, slower).plain == ("softcap", "attend")
