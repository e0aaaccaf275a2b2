"""The audit's arithmetic passes honest losses, and fails every kind of lie that pays."""

import numpy as np
import pytest

from agent.runs import audit
from agent.runs.audit import Sample, compare, draw, questions

ROWS, LENGTH, VOCABULARY = 512, 64, 100
EVERYWHERE = np.ones((ROWS, LENGTH), bool)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def text(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, VOCABULARY, shape).astype(np.uint16)


def losses_of_two_models(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return losses (R, T) of an incumbent and a candidate: about 3 nats, and 0.4 apart on most tokens."""
    incumbent = rng.gamma(1.5, 2.0, (ROWS, LENGTH)).astype(np.float32)
    return incumbent, np.maximum(incumbent + rng.normal(0, 0.4, incumbent.shape), 0.001).astype(np.float32)


def an_audit(rng: np.random.Generator, lie: float | np.ndarray = 0.0, answer: float | None = None) -> audit.Audit:
    """Audit a model that committed to its losses minus a lie, (R, T) or the same everywhere, and answers honestly.

    answer: the logit that it gives to one of the true tokens instead.
    """
    incumbent, honest = losses_of_two_models(rng)
    targets = text(rng, ROWS, LENGTH)
    committed = np.maximum(honest - lie, 0).astype(np.float32)
    drawn = draw(committed, incumbent, EVERYWHERE, VOCABULARY, rng)
    answers = [logits_with_losses(*(of.ravel()[sample.places] for of in (honest, targets))) for sample in drawn]
    if answer is not None:
        answers[0][3, targets.ravel()[drawn[0].places[3]]] = answer
    return compare(drawn, answers, committed, targets, 0.1)


def logits_with_losses(losses: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return logits (K, V) in which the target's probability is exp(-loss) and the others share the rest."""
    p = np.exp(-losses.astype(np.float64))
    logits = np.repeat(np.log((1 - p) / (VOCABULARY - 1))[:, None], VOCABULARY, axis=1)
    logits[np.arange(len(targets)), targets] = np.log(p)
    return (logits + 5.0).astype(np.float32)  # no constant that is added to all logits matters


def test_an_honest_model_passes(rng):
    verdict = an_audit(rng)
    assert verdict.passed
    assert verdict.positions == audit.POSITIONS
    assert verdict.worst_nats < 1e-4


@pytest.mark.parametrize(
    ("share", "nats"),
    [(1.0, 0.02), (0.1, 0.5), (0.02, 2.0), (0.005, 4.0), (0.001, 6.0)],
    ids=["a little everywhere", "a tenth", "one in 50", "one in 200", "one in 1,000"],
)
def test_lies_are_found_whether_they_are_many_or_few(rng, share, nats):
    caught = sum(not an_audit(rng, nats * (rng.random((ROWS, LENGTH)) < share)).passed for _ in range(30))
    assert caught >= 29


def test_a_constant_lie_below_the_tolerance_is_found_by_its_mean(rng):
    verdict = an_audit(rng, audit.TOLERANCE_NATS / 2)
    assert verdict.failure.endswith("below the model's own on average")


@pytest.mark.parametrize("answer", [np.nan, np.inf, -np.inf])
def test_answers_that_are_no_numbers_fail(rng, answer):
    verdict = an_audit(rng, answer=answer)
    assert not verdict.passed
    assert np.isfinite(verdict.worst_nats)  # a table has no infinite number


def test_rows_are_true_up_to_their_position_and_not_true_right_after_it(rng):
    inputs, targets = text(rng, ROWS, LENGTH), text(rng, ROWS, LENGTH)
    targets[:, :-1] = inputs[:, 1:]
    incumbent, candidate = losses_of_two_models(rng)
    sample = draw(candidate, incumbent, EVERYWHERE, VOCABULARY, rng)[0]
    rows, positions = questions(sample, inputs, targets, text(rng, 5000), rng)
    for row, position, place in zip(rows, positions, sample.places, strict=True):
        true = inputs[place // LENGTH]
        assert place % LENGTH == position
        assert (row[: position + 1] == true[: position + 1]).all()
        assert position + 1 == LENGTH or row[position + 1] != targets.ravel()[place]


def indices(drawn: list[Sample]) -> list[int]:
    return [place for sample in drawn for place in sample.places.tolist()]


@pytest.mark.parametrize("rows", [128, ROWS])
def test_what_one_process_is_shown_holds_no_answer_to_what_it_is_asked(rng, rows):
    """This holds even if gains lie in a few rows, late in one and early in the next."""
    incumbent = np.ones((rows, LENGTH), np.float32)
    incumbent[::4, -1] = incumbent[::4, 3] = incumbent[1::4, 0] = 45.0
    candidate = np.full((rows, LENGTH), 0.9, np.float32)
    drawn = draw(candidate, incumbent, EVERYWHERE[:rows], VOCABULARY, rng)
    assert len(indices(drawn)) == len(set(indices(drawn))) == audit.POSITIONS
    for sample in drawn:
        at = [divmod(place, LENGTH) for place in sample.places.tolist()]
        asked_rows = [row for row, _ in at]
        assert len(set(asked_rows)) == len(asked_rows)
        assert not {row + 1 for row, position in at if position == LENGTH - 1} & set(asked_rows)


def test_one_process_looks_at_half_of_the_rows_at_most_and_four_at_as_many_positions_as_are_asked_for(rng):
    committed = rng.random((32, 64)).astype(np.float32)
    counted = np.ones_like(committed, bool)
    for processes, positions in ((1, [16]), (4, [16] * 4)):
        asked = draw(committed, committed + 1, counted, 512, rng, processes=processes)
        assert [len(sample.places) for sample in asked] == positions
