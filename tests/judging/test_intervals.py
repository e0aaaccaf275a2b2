"""How sure a gain is: over seeds, over documents, and over both."""

import pytest

from agent.experiment import Interval


def test_fresh_seeds_of_two_scripts_give_welchs_interval():
    from scipy import stats  # takes a second to import, in each worker

    before, after = (1.00, 1.02, 1.04), (0.90, 0.91, 0.95, 0.96)
    interval = Interval.of_scores(before, after)
    assert interval is not None
    assert interval.mean_bpb == pytest.approx(0.09)
    theirs = stats.ttest_ind(before, after, equal_var=False).confidence_interval(0.95)
    assert (interval.low_bpb, interval.high_bpb) == pytest.approx((theirs.low, theirs.high))
