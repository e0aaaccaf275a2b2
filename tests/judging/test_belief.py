"""What a night knows: messages along its tree against sums over everything, and what it learns from itself."""

import numpy as np
import pytest

from agent.judging.belief import (
    POINTS,
    PRIOR,
    SIZE,
    STEP,
    Belief,
    Distribution,
    Lattice,
    Node,
    effects,
    learn,
)

#  0 ─┬─ 1 ─┬─ 3
#     └─ 2  └─ 4 ── 5
PARENTS = (0, 0, 0, 1, 1, 4)
SCORES = ((0.3, -2.0, 4.0), (6.2,), (-10.0,), (5.0,), (12.0, 7.0), (3.0,))  # steps
TREE = tuple(
    Node(parent, tuple(score * STEP for score in scores)) for parent, scores in zip(PARENTS, SCORES, strict=True)
)


LATTICE = Lattice.of(TREE, 1.0)


def points(i: int) -> np.ndarray:
    return LATTICE.centres[i] + POINTS


def table(i: int) -> np.ndarray:  # (merit of the child, merit of its parent)
    """Probability of every pair's difference, spelled out."""
    differences = points(i)[:, None] - points(PARENTS[i])
    return np.tensordot(PRIOR, effects(differences.ravel()).reshape(-1, SIZE, SIZE), 1)


def joint() -> np.ndarray:
    """Of the merits of attempt 4 and its parent, by sums over all the others."""
    own = LATTICE.runs
    four = own[4] * (own[5] @ table(5))
    above = table(1) @ (own[0] * (own[2] @ table(2)))
    pairs = table(4) * four[:, None] * (own[1] * (own[3] @ table(3)) * above)
    return pairs / pairs.sum()


def test_messages_give_what_sums_over_all_merits_give():
    effect, pairs = Belief.of(LATTICE, PRIOR).effect(4), joint()
    differences = (points(4)[:, None] - points(1)) * STEP
    assert effect.sure == pytest.approx(pairs[differences > 0].sum())
    assert effect.mean == pytest.approx((pairs * differences).sum())
    assert worth(effect) == pytest.approx((pairs * np.where(differences > 0, differences, differences - 0.3)).sum())
    for step in (-3, 0, 5):
        assert effect.probability[effect.sizes == step * STEP] == pytest.approx(pairs[differences == step * STEP].sum())


def worth(effect: Distribution) -> float:
    return float(effect.worths(0.3).sum())


def believed(*nodes: Node) -> Belief:
    return Belief.of(Lattice.of(nodes, 1.0), PRIOR)


def test_a_proposers_record_is_part_of_the_prior_of_its_next_edit():
    gains, harms = ([Node(0, (score,), proposer=proposer)] * 20 for score, proposer in ((3.0, "good"), (-3.0, "poor")))
    nodes = Node(0, (0.0, 0.3, -0.3)), *gains, *harms
    proposers = "poor", "new", "good"
    sure = [learn((*nodes, Node(0, (1.0,), proposer=proposer))).effect(len(nodes)).sure for proposer in proposers]
    assert sure[0] + 0.05 < sure[1] < sure[2] - 0.05


def test_an_outlier_is_no_discovery():
    """Two runs, one far out: the mean of a Gaussian would be sure of a gain."""
    baseline = Node(0, (0.0, 0.3, -0.3))
    odd, fine = (believed(baseline, Node(0, scores)).effect(1) for scores in ((7.0, 0.0), (3.5, 3.5)))
    assert odd.sure < 0.8 < 0.98 < fine.sure
