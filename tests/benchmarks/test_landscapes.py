"""The simulated landscapes on which the search is compared with others."""

import json
import sys
from pathlib import Path

import pytest
from nights import PROJECT

sys.path.insert(0, str(PROJECT / "benchmarks"))

import landscapes

from agent.experiment import Kind


def test_simulated_nights_are_the_same_for_everybody_and_every_time(tmp_path: Path):
    flats = []
    for name in ("one.json", "other.json"):
        options = [
            "--quick",
            "--processes",
            "1",
            "--runs",
            "5",
            "8",
            "--kinds",
            "bowl",
            "--arms",
            "search",
            "random",
            "cma",
        ]
        assert landscapes.main([*options, "--json", str(tmp_path / name)]) == 0
        flats.append(json.loads((tmp_path / name).read_text()))
    assert flats[0] == flats[1]
    assert {"search_8_share", "random_5_share", "cma_bowl_8_gain", "cma_5_crashes"} <= flats[0].keys()
    assert flats[0]["random_8_tried"] >= flats[0]["random_5_tried"], "a night goes on where it was at the mark"


def test_runs_that_repeat_an_attempt_count_as_runs():
    night = landscapes.SimulatedNight("bowl", 0, "balanced")
    outcomes = night.live(landscapes.ARMS["steps"](0), (4, 12))
    assert len(night.history[0].runs) >= 3, "the judge calibrates"
    assert sum(len(one.runs) for one in night.history) == 12
    assert outcomes.keys() == {4, 12}
    assert outcomes[12].attempts == len(night.history) <= 10


def test_with_several_workers_proposals_do_not_wait_for_results_and_no_run_is_lost():
    night, told = landscapes.SimulatedNight("loud", 0, "greedy", workers=4), []

    def propose(briefing):
        told.append(sum(one.decision is None for one in briefing.history))
        return landscapes.ARMS["random"](0)(briefing)

    outcomes = night.live(propose, (12,))
    assert told[:4] == [0, 1, 2, 3]
    assert set(told[4:]) == {3}
    assert sum(len(one.runs) for one in night.history) == 12
    assert outcomes[12].attempts == sum(bool(one.runs) for one in night.history)


def test_an_edit_that_was_overtaken_is_merged_and_has_to_win_again():
    night = landscapes.SimulatedNight("quiet", 0, "greedy", workers=8)
    night.live(landscapes.ARMS["random"](0), (30,))
    merges = [one for one in night.history if one.proposal.merges is not None]
    assert merges
    for one in merges:
        assert night.history[one.proposal.merges].kind is Kind.OVERTAKEN
        assert one.parent > night.history[one.proposal.merges].parent


def test_edges_have_cliffs_on_both_sides_of_the_start():
    lands = [landscapes.Landscape("edges", seed) for seed in range(8)]
    assert all(len(land.cliffs) + len(land.drops) == len(landscapes.DIALS) // 4 for land in lands)
    land = next(land for land in lands if land.drops)
    dial, edge = land.drops[0]
    below = landscapes.START.copy()
    below[dial] = edge - 0.01
    assert land.crashes(below)


@pytest.mark.parametrize("kind", landscapes.GAINS)
def test_a_landscape_holds_what_its_kind_says(kind):
    land = landscapes.Landscape(kind, 0)
    apart = landscapes.START - land.best
    assert (land.weight * apart**2).sum() == pytest.approx(landscapes.GAINS[kind], rel=0.15)
    assert not land.crashes(landscapes.START)
