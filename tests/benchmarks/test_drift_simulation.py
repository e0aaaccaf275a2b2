"""Slow spells simulated: on a steady machine no run is called slow, and a large loss is noticed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drift


def test_a_steady_machine_is_not_called_slow_and_a_large_loss_is_noticed():
    quiet, slow = (drift.simulate("h200", spell, 4, 1) for spell in ("none", "lost40"))
    assert quiet["h200_none_false_alarms"] < 0.01
    assert slow["h200_lost40_repeats_noticed"] > 0.9
