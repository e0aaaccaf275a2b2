"""What a night knows: messages along its tree against sums over everything, and what it learns from itself."""

from dataclasses import replace

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


def joint(i: int) -> np.ndarray:
    """Of the merits of attempt 4 or 1 and its parent, by sums over all the others."""
    own = LATTICE.runs
    four = own[4] * (own[5] @ table(5))
    three, two = own[3] @ table(3), own[2] @ table(2)
    if i == 4:
        above = table(1) @ (own[0] * two)
        pairs = table(4) * four[:, None] * (own[1] * three * above)
    else:
        pairs = table(1) * (own[1] * three * (four @ table(4)))[:, None] * (own[0] * two)
    return pairs / pairs.sum()


@pytest.mark.parametrize("i", [1, 4])
def test_messages_give_what_sums_over_all_merits_give(i):
    effect, pairs = Belief.of(LATTICE, PRIOR).effect(i), joint(i)
    differences = (points(i)[:, None] - points(PARENTS[i])) * STEP
    assert effect.sure == pytest.approx(pairs[differences > 0].sum())
    assert effect.mean == pytest.approx((pairs * differences).sum())
    assert worth(effect) == pytest.approx((pairs * np.where(differences > 0, differences, differences - 0.3)).sum())
    for step in (-3, 0, 5):
        assert effect.probability[effect.sizes == step * STEP] == pytest.approx(pairs[differences == step * STEP].sum())


def worth(effect: Distribution) -> float:
    return float(effect.worths(0.3).sum())


def believed(*nodes: Node) -> Belief:
    return Belief.of(Lattice.of(nodes, 1.0), PRIOR)


def night(rng: np.random.Generator, edits: int, shares: tuple[float, float, float]) -> tuple[Node, ...]:
    """Each an edit of the root: harms of 3 sigma, nothing, gains of 1.5 sigma."""
    kinds = rng.choice(3, size=edits, p=shares)
    sizes = rng.exponential(size=edits)
    merits = np.select([kinds == 0, kinds == 1], [-3.0 * sizes, 0.0 * sizes], 1.5 * sizes) + rng.normal(size=edits)
    return (Node(0, tuple(rng.normal(size=12))), *(Node(0, (float(merit),)) for merit in merits))


def two_sources(seed: int) -> tuple[Node, ...]:
    """150 edits of each: of one source half are gains, of the other one in 33."""
    rng = np.random.default_rng(seed)
    good, poor = night(rng, 150, (0.3, 0.2, 0.5)), night(rng, 150, (0.85, 0.12, 0.03))
    return (
        good[0],
        *(replace(one, source="good") for one in good[1:]),
        *(replace(one, source="poor") for one in poor[1:]),
    )


def test_a_sources_record_is_part_of_the_prior_of_its_next_edit():
    for seed in range(3):
        told = two_sources(seed)
        sure = {
            source: learn((*told, Node(0, (2.0,), source=source))).effect(len(told)).sure
            for source in ("good", "poor", "new")
        }
        untold = learn(tuple(replace(one, source="") for one in (*told, Node(0, (2.0,))))).effect(len(told)).sure
        assert sure["good"] > untold + 0.03
        assert sure["poor"] < untold - 0.05
        assert sure["poor"] < sure["new"] < sure["good"]


def test_an_outlier_is_no_discovery():
    """Two runs, one far out: the mean of a Gaussian would be sure of a gain."""
    baseline = Node(0, (0.0, 0.3, -0.3))
    odd, fine = (believed(baseline, Node(0, scores)).effect(1) for scores in ((7.0, 0.0), (3.5, 3.5)))
    assert odd.sure < 0.8 < 0.98 < fine.sure
