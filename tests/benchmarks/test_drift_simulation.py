"""Slow spells simulated: on a steady machine hardly a run is called slow, and a large loss is noticed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drift


@pytest.mark.parametrize("spell", drift.SPELLS)
def test_a_spell_slows_the_runs_in_it_and_no_others(spell):
    assert drift.slowed_by(spell, -1) == (0.0, 0.0)
    first, last = drift.slowed_by(spell, 0), drift.slowed_by(spell, 30)
    assert (max(first) > 0) == (spell != "none")
    assert (max(last) > 0) == (spell == "kept20")


def test_a_steady_machine_is_not_called_slow_and_a_large_loss_is_noticed():
    quiet, slow = (drift.simulate("h200", spell, 4, 1) for spell in ("none", "sudden40"))
    assert quiet["h200_none_false_alarms"] < 0.01
    assert slow["h200_sudden40_repeats_noticed"] > 0.9
    assert quiet["h200_none_paces"] == 0
