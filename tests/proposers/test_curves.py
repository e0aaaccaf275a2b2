"""The search's model: what scores say about each dial, and which dial a crash is blamed on."""

import numpy as np
import pytest

from agent.proposers.search.acquisition import edge_risk
from agent.proposers.search.curves import Blocks, Curves, Scores

DIALS = 12
NUMBERS = np.zeros(DIALS, np.int64)
START = np.full(DIALS, 0.5)


def scored(bpb_of, count: int, seed: int, sigma_bpb: float = 0.0) -> Scores:
    rng = np.random.default_rng(seed)
    places = np.vstack([START, rng.uniform(0.3, 0.7, (count, DIALS))])
    bpb = np.array([bpb_of(place) for place in places]) + sigma_bpb * rng.standard_normal(count + 1)
    return Scores(places, bpb, np.ones(count + 1), np.zeros(count + 1, np.int64), NUMBERS)


def two_matter(place: np.ndarray) -> float:
    return 1 + 0.5 * (place[3] - 0.35) ** 2 - 0.2 * (place[7] - 0.5)


def fitted(scores: Scores, sigma_bpb: float | None, seed: int = 0) -> Curves:
    return Curves.fitted(scores, START, sigma_bpb, np.random.default_rng(seed))


@pytest.mark.parametrize("sigma_bpb", [0.01, None])
def test_every_run_says_something_about_each_dial_that_it_turns(sigma_bpb):
    curves = fitted(scored(two_matter, 40, 0, 0.01), sigma_bpb)
    turned = START + 0.2 * np.eye(DIALS)
    falls = np.array([curves.gain(START, place)[0] for place in turned])
    assert np.argmax(falls) == 7
    assert np.argmin(falls) == 3
    assert falls[7] == pytest.approx(0.04, abs=0.012)
    others = np.delete(falls, [3, 7])
    assert np.abs(others).max() < 0.012, "few dials matter"


def test_the_unit_of_the_scores_and_the_level_of_a_group_do_not_matter():
    scores = scored(two_matter, 30, 2, 0.01)
    there = START + np.linspace(-0.2, 0.2, DIALS)
    falls = fitted(scores, 0.01).gain(START, there)
    larger = Scores(scores.places, 100 * scores.bpb, scores.runs, scores.groups, NUMBERS)
    assert fitted(larger, 1.0).gain(START, there) == pytest.approx([100 * fall for fall in falls], rel=1e-6)
    groups = np.arange(31) % 2
    apart = [
        fitted(Scores(scores.places, scores.bpb + level * groups, scores.runs, groups, NUMBERS), 0.01)
        for level in (0.0, 5.0)
    ]
    assert apart[0].gain(START, there) == pytest.approx(apart[1].gain(START, there), rel=1e-6)


def test_a_score_that_is_worth_less_says_less():
    there = START + 0.2 * np.eye(DIALS)[3]
    scores = scored(two_matter, 40, 3, 0.01)
    faint = Scores(scores.places, scores.bpb, scores.runs * 0.01, scores.groups, NUMBERS)
    sure, unsure = (fitted(one, 0.01).gain(START, there) for one in (scores, faint))
    assert unsure[1] > 1.5 * sure[1]
    assert abs(unsure[0]) < abs(sure[0])


def test_words_are_alike_or_not():
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.integers(0, 3, 30) * 1.0, rng.uniform(0, 1, 30)])
    bpb = 1 + np.array([0.0, 0.1, -0.1])[places[:, 0].astype(int)] + 0.005 * rng.standard_normal(30)
    scores = Scores(places, bpb, np.ones(30), np.zeros(30, np.int64), np.array([3, 0]))
    curves = Curves.fitted(scores, np.array([0.0, 0.5]), 0.005, np.random.default_rng(0))
    falls = [curves.gain(np.array([0.0, 0.5]), np.array([word, 0.5]))[0] for word in (0.0, 1.0, 2.0)]
    assert falls == pytest.approx([0.0, -0.1, 0.1], abs=0.015)


def test_a_dial_of_many_words_widens_no_other_and_each_word_is_told_apart():
    blocks = Blocks.of(np.array([0, 7, 0]))
    assert blocks.owner.tolist() == [0, 1, 1, 1, 1, 2]
    levels = np.array([0.0, 0.1, -0.1, 0.2, 0.0, -0.2, 0.1])
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.uniform(0, 1, 70), np.arange(70) % 7 * 1.0, rng.uniform(0, 1, 70)])
    bpb = 1 + levels[places[:, 1].astype(int)] + 0.005 * rng.standard_normal(70)
    scores = Scores(places, bpb, np.ones(70), np.zeros(70, np.int64), np.array([0, 7, 0]))
    here = np.array([0.5, 0.0, 0.5])
    curves = Curves.fitted(scores, here, 0.005, np.random.default_rng(0))
    falls = [curves.gain(here, np.array([0.5, word, 0.5]))[0] for word in range(7)]
    assert falls == pytest.approx(-levels, abs=0.015)


# ---- crashes ---------------------------------------------------------------------------------------------------------


def risks(fine: list[list[float]], crashed: list[list[float]], place: list[float]) -> list[float]:
    found = edge_risk(np.array(fine), np.array(crashed).reshape(-1, 2), np.array([place]), np.ones(2, bool))
    return found[0].tolist()


RAN = [[0.4, 0.4], [0.6, 0.6], [0.5, 0.5]]


def test_between_places_that_ran_is_no_risk_and_beyond_them_it_grows():
    assert risks(RAN, [], [0.6, 0.4]) == [0.0, 0.0]
    near, far = risks(RAN, [], [0.7, 0.5]), risks(RAN, [], [0.9, 0.5])
    assert 0 < near[0] < far[0] < 0.1
    assert near[1] == far[1] == 0
    assert risks(RAN, [[0.45, 0.55]], [0.5, 0.5]) == [0.0, 0.0], "a crash within them is no edge of one dial"


def test_a_crash_is_blamed_on_the_dial_that_left_what_ran():
    known = risks(RAN, [[0.8, 0.5]], [0.9, 0.9])
    assert known[0] > 0.99
    assert known[1] < 0.1
    assert risks(RAN, [[0.8, 0.5]], [0.7, 0.5])[0] == pytest.approx(0.5, abs=0.05), "the edge is half way or not"


def test_two_crashes_are_rather_blamed_on_the_dial_that_they_share():
    alone = risks(RAN, [[0.8, 0.8]], [0.8, 0.5])[0]
    shared = risks(RAN, [[0.8, 0.8], [0.8, 0.5]], [0.8, 0.8])
    assert alone == pytest.approx(0.5, abs=0.1)
    assert shared[0] > 0.99
    assert shared[1] < 0.2


def test_a_word_that_crashed_and_never_ran_is_avoided():
    words = np.array([False])
    found = edge_risk(np.array([[0.0], [1.0]]), np.array([[2.0]]), np.array([[0.0], [1.0], [2.0], [3.0]]), words)
    assert found[:2, 0].tolist() == [0.0, 0.0]
    assert found[2, 0] > 0.99
    assert 0.1 < found[3, 0] < 0.4
