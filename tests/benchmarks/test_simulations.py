"""Nights in which the truth is known: worlds are what they say, a simulated night is one, and every key is there."""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drift
import judge_power
import landscapes
import measure
from judge_power import Edits
from simulator import Night

from agent.experiment import Attempt, Kind, Proposal, Status
from agent.judging.judges import Balanced, Greedy, Judge

# ---- edits that add up -----------------------------------------------------------------------------------------------


def test_effects_are_mixed_as_said():
    effects = np.concatenate([Edits(seed).effects for seed in range(200)])
    assert (effects < 0).mean() == pytest.approx(0.70, abs=0.01)
    assert (effects == 0).mean() == pytest.approx(0.18, abs=0.01)
    assert effects[effects > 0].mean() == pytest.approx(1.5, abs=0.08)


@pytest.mark.parametrize("mixture", ["usual", "heavy"])
def test_runs_move_by_one_sigma(mixture):
    world, attempt = Edits(3, mixture), Attempt(0, None, Proposal("", "", ""), "")
    for _ in range(1000):
        attempt = world.run(attempt, [attempt])
    assert np.std(attempt.scores_bpb) == pytest.approx(world.sigma_bpb, rel=0.2)


@cache
def a_night(judge: Judge, seed: int) -> list[Attempt]:
    return judge_power.a_night(judge, Edits(seed))


@pytest.mark.slow
def test_every_night_spends_its_runs_and_every_policy_sees_the_same_edits():
    for judge in (Greedy(), Balanced()):
        history = a_night(judge, 1)
        assert sum(len(attempt.runs) for attempt in history) == judge_power.RUNS
        assert all(attempt.decision for attempt in history)
        chain = [attempt for attempt in history if attempt.status is Status.KEEP]
        assert [after.parent for after in chain[1:]] == [before.number for before in chain[:-1]]


@pytest.mark.slow
def test_of_the_keeps_of_balanced_fewer_than_of_greedy_are_worthless_and_no_more_than_three_in_ten():
    worthless = {}
    for judge in (Balanced(), Greedy()):
        kept = []
        for seed in range(4):
            history = a_night(judge, seed)
            kept += [Edits(seed).effects[idea.number] for idea in history[1:] if idea.status is Status.KEEP]
        worthless[type(judge)] = np.mean(np.array(kept) <= 0)
    assert worthless[Balanced] <= 0.3 < worthless[Greedy]


def test_an_edit_that_was_overtaken_is_merged_and_has_to_win_again():
    history = Night(Edits(1), Greedy(), 60, workers=8).simulate().history
    merges = [attempt for attempt in history if attempt.proposal.merges is not None]
    assert merges
    for attempt in merges:
        assert history[attempt.proposal.merges].kind is Kind.OVERTAKEN
        assert attempt.parent > history[attempt.proposal.merges].parent


# ---- scripts in landscapes -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_simulated_nights_are_the_same_for_everybody_and_every_time(tmp_path):
    words = ["--quick", "--processes", "1", "--runs", "5", "8", "--arms", "search", "random", "cma"]
    flats = []
    for name in ("one.json", "other.json"):
        assert landscapes.main([*words, "--json", str(tmp_path / name)]) == 0
        flats.append(json.loads((tmp_path / name).read_text()))
    assert flats[0] == flats[1]
    assert {"search_8_share", "random_5_share", "cma_bowl_8_gain", "cma_5_crashes"} <= flats[0].keys()
    assert flats[0]["random_8_crashes"] >= flats[0]["random_5_crashes"], "a night goes on where it was at the mark"


@pytest.mark.parametrize("kind", landscapes.GAINS)
def test_a_landscape_holds_what_its_kind_says(kind):
    land = landscapes.Bowl(kind, 0)
    apart = landscapes.START - land.best
    assert (land.weight * apart**2).sum() == pytest.approx(landscapes.GAINS[kind], rel=0.15)
    assert not land.crashes(landscapes.START)


@pytest.mark.parametrize("kind", landscapes.TEXTS)
def test_a_measured_landscape_says_of_each_turn_what_its_run_has_said(kind):
    land = landscapes.landscape(kind, 0)

    def loss(**turned):
        return land.loss(landscapes.place_of(landscapes.set_dials(land.script, landscapes.KIND, turned)))

    assert loss() == 0
    assert 2 < -loss(DEPTH=6) < 5  # sigma: 0.016 bpb of 0.0034 on books, whose run stands for Linux, too
    assert loss(MICRO_STEPS=2) > 5
    assert loss(ASPECT_RATIO=48) < 0 < loss(ASPECT_RATIO=96)
    assert abs(loss(WARMDOWN_FRACTION=0.58)) < 0.5
    together, apart = loss(ASPECT_RATIO=96, BATCH_ROWS=32), loss(ASPECT_RATIO=96) + loss(BATCH_ROWS=32)
    assert together < apart - 2, "this pair was measured"
    too_wide = landscapes.set_dials(land.script, landscapes.KIND, {"ASPECT_RATIO": 128})
    assert land.crashes(landscapes.place_of(too_wide))
    assert 5 < land.to_be_had < 15


def test_in_a_sharp_landscape_eight_dials_turned_by_a_fifth_cost_some_sigma_and_never_gain_one():
    rng, costs = np.random.default_rng(0), []
    for seed in range(40):
        land, place = landscapes.Bowl("sharp", seed), landscapes.START.copy()
        dials = rng.permutation(len(place))[:8]
        place[dials] += np.where(place[dials] < 0.5, 0.2, -0.2)
        costs.append(land.loss(place) - land.loss(landscapes.START))
    assert np.mean(costs) == pytest.approx(2.5, abs=1)
    assert min(costs) > -1


# ---- slow spells -----------------------------------------------------------------------------------------------------


def test_a_steady_machine_is_not_called_slow_and_a_large_loss_is_noticed():
    quiet, slow = (drift.simulate("h200", spell, 4) for spell in ("none", "lost40"))
    assert quiet["h200_none_false_alarms"] < 0.01
    assert slow["h200_lost40_repeats_noticed"] > 0.9


# ---- the command line ------------------------------------------------------------------------------------------------


def test_a_benchmark_falls_short_by_its_exit_code(tmp_path, capsys):
    @measure.program(lambda flat: bool(flat["lost"]), lost=1)
    def main(*, lost: int = 0) -> measure.Flat:
        return {"lost": lost}

    assert main(["--quick", "--json", str(tmp_path / "flat.json")]) == 1
    assert json.loads((tmp_path / "flat.json").read_text()) == {"lost": 1}
    assert main(["--quick", "--lost", "0"]) == 0
    assert main([]) == 0
    assert main(["--found", "1"]) == 2
    assert capsys.readouterr().err.endswith("Unknown option: --found.\n")
