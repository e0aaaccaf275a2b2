"""The simulated landscapes on which the search is compared with others."""

import json
import sys
from pathlib import Path

import pytest
from nights import PROJECT

sys.path.insert(0, str(PROJECT / "benchmarks"))

import landscapes


def test_simulated_nights_are_the_same_for_everybody_and_every_time(tmp_path: Path):
    flats = []
    for name in ("one.json", "other.json"):
        options = ["--quick", "--runs", "8", "--kinds", "bowl", "--arms", "search", "random", "cma"]
        assert landscapes.main([*options, "--json", str(tmp_path / name)]) == 0
        flats.append(json.loads((tmp_path / name).read_text()))
    assert flats[0] == flats[1]
    assert {"search_share", "random_share", "cma_bowl_gain", "cma_crashes"} <= flats[0].keys()


@pytest.mark.parametrize("kind", landscapes.GAINS)
def test_a_landscape_holds_what_its_kind_says(kind):
    land = landscapes.Landscape(kind, 0)
    apart = landscapes.START - land.best
    assert (land.weight * apart**2).sum() == pytest.approx(landscapes.GAINS[kind], rel=0.15)
    assert not land.crashes(landscapes.START)
