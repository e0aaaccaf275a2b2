"""How sure a gain is: over seeds, over documents, and over both."""

import math

import numpy as np
import pytest

from agent.judging.intervals import LEAST_DOCUMENTS, Pieces, Spread, difference

BOS = 9
BYTES = np.array([1, 2, 3, 4, 1, 1, 1, 1, 1, 0], np.int32)


def test_fresh_seeds_of_two_scripts_give_welchs_interval():
    from scipy import stats  # takes a second to import, in each worker

    before, after = (1.00, 1.02, 1.04), (0.90, 0.91, 0.95, 0.96)
    interval = difference(before, after)
    assert interval is not None
    assert interval.mean_bpb == pytest.approx(0.09)
    theirs = stats.ttest_ind(before, after, equal_var=False).confidence_interval(0.95)
    assert (interval.low_bpb, interval.high_bpb) == pytest.approx((theirs.low, theirs.high))


def test_independent_errors_add_up_and_nothing_is_added_by_none():
    both = Spread(3.0, 10) + Spread(4.0, 20)
    assert both.error_bpb == 5.0
    assert both.freedom == pytest.approx(625 / (81 / 10 + 256 / 20))
    assert Spread(0.0, 3) + Spread(2.0, 7) == Spread(2.0, 7)
    exact = (Spread(0.0, 3) + Spread(0.0, 3)).around(0.1)
    assert (exact.low_bpb, exact.high_bpb) == (0.1, 0.1)
    assert Spread(1.0, math.inf).around(0.0).high_bpb == pytest.approx(1.96, abs=1e-3)


def test_documents_begin_at_their_bos_wherever_rows_end():
    line = np.array([0, 1, 2] + [BOS, 3, 3] * LEAST_DOCUMENTS + [BOS] * 3)  # filled up with BOS
    targets = line.reshape(-1, 6)
    pieces = Pieces.of(targets, BYTES, BOS)
    assert pieces.bytes.tolist() == [6] + [8] * LEAST_DOCUMENTS + [0] * 3
    losses = np.arange(targets.size, dtype=np.float32).reshape(targets.shape)
    nats = pieces.nats(losses, BYTES[targets] > 0)
    assert nats[:3].tolist() == [0 + 1 + 2, 4 + 5, 7 + 8]
    assert nats.sum() == losses[BYTES[targets] > 0].sum()


def test_a_text_of_few_documents_is_cut_into_its_rows():
    targets = np.array([[0, 1, BOS, 3], *[[1, 1, 1, 1]] * LEAST_DOCUMENTS])
    assert Pieces.of(targets, BYTES, BOS).bytes.tolist() == [7] + [8] * LEAST_DOCUMENTS


def test_the_interval_over_documents_holds_the_truth_19_times_in_20():
    """Of documents of very different length, some of which gain more than others."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        sizes = np.ceil(rng.lognormal(6, 1, size=30)).astype(np.int64)
        gains = sizes * (0.1 + 0.05 * rng.normal(size=30)) * math.log(2)
        found = Pieces(np.arange(30), sizes).spread(gains)
        assert found is not None
        interval = found.around(gains.sum() / math.log(2) / sizes.sum())
        held += interval.low_bpb <= 0.1 <= interval.high_bpb
    assert held >= 0.93 * 400


def test_one_document_tells_nothing_about_others():
    assert Pieces(np.array([0, 4]), np.array([5, 0])).spread(np.array([3.0, 0.0])) is None
