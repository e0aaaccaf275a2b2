"""Nights in which the truth is known: worlds are what they say, a simulated night is one, and every key is there."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drift
import judge_power
import landscapes
import measure
from judge_power import Edits

from agent.experiment import Attempt, Kind, Proposal, Status
from agent.judging.judges import Balanced, Greedy

# ---- edits that add up -----------------------------------------------------------------------------------------------


def test_effects_are_mixed_as_said():
    effects = np.concatenate([Edits(seed).effects for seed in range(200)])
    assert (effects < 0).mean() == pytest.approx(0.70, abs=0.01)
    assert (effects == 0).mean() == pytest.approx(0.18, abs=0.01)
    assert effects[effects > 0].mean() == pytest.approx(1.5, abs=0.08)
    late = np.concatenate([Edits(seed, "rarer").effects[-5:] for seed in range(200)])
    assert (late > 0).mean() < 0.03
    nights = [Edits(seed, "sources") for seed in range(200)]
    effects, sources = (np.concatenate([getattr(night, name) for night in nights]) for name in ("effects", "sources"))
    assert [(effects[sources == k] > 0).mean() for k in (0, 1)] == pytest.approx([0.25, 0.03], abs=0.01)


def test_a_judge_that_is_not_told_the_sources_sees_one():
    told, untold = (judge_power.a_night(Greedy(), Edits(1, "sources", told=told)) for told in (True, False))
    assert len({attempt.proposal.source for attempt in told}) == 2
    assert len({attempt.proposal.source for attempt in untold}) == 1


@pytest.mark.parametrize("heavy", [False, True])
def test_runs_move_by_one_sigma(heavy):
    world, attempt = Edits(3, heavy=heavy), Attempt(0, None, Proposal("", "", "", ""), "")
    for _ in range(1000):
        attempt = world.run(attempt, [attempt])
    assert np.std(attempt.scores_bpb) == pytest.approx(world.sigma_bpb, rel=0.2)


def test_every_night_spends_its_runs_and_every_policy_sees_the_same_edits():
    for judge in (Greedy(), Balanced()):
        history = judge_power.a_night(judge, Edits(1))
        assert sum(len(attempt.runs) for attempt in history) == judge_power.RUNS
        assert all(attempt.decision for attempt in history)
        chain = [attempt for attempt in history if attempt.status is Status.KEEP]
        assert [after.parent for after in chain[1:]] == [before.number for before in chain[:-1]]


def test_a_script_without_an_edit_lacks_its_effect():
    world = Edits(1)
    history = judge_power.a_night(Greedy(), world)
    kept = [attempt for attempt in history if attempt.status is Status.KEEP]
    question = Attempt(len(history), kept[-1].number, Proposal("", "", "", "", without=(kept[1].number,)), "")
    lost = world.merit(kept[-1], history) - world.merit(question, history)
    assert lost == pytest.approx(world.effects[kept[1].number])
    assert judge_power.policies("sources") == ("greedy", "gate", "strict", "untold", "balanced", "dawn")


@pytest.mark.slow
def test_the_quick_form_has_a_figure_for_every_policy(tmp_path, capsys):
    words = ["--quick", "--nights", "2", "--json", str(tmp_path / "power.json")]
    assert judge_power.PROGRAM.main(words) == 0
    flat = json.loads((tmp_path / "power.json").read_text())
    keys = ("true_gain", "bias", "keeps", "worthless", "runs_per_attempt", "false_keeps_per_100")
    for policy, key in itertools.product(judge_power.POLICIES, keys):
        assert isinstance(flat[f"{policy}_{key}"], int | float)
    assert flat["greedy_runs_per_attempt"] == 1.0
    assert flat["gate_runs_per_attempt"] == pytest.approx(3.0)
    assert flat["balanced_runs_per_attempt"] < flat["strict_runs_per_attempt"]
    assert flat["greedy_bias"] > abs(flat["balanced_bias"]) - 1
    assert "usual, Gaussian noise, 2 nights" in capsys.readouterr().out


# ---- scripts in landscapes -------------------------------------------------------------------------------------------


def test_simulated_nights_are_the_same_for_everybody_and_every_time(tmp_path):
    words = ["--quick", "--processes", "1", "--runs", "5", "8", "--kinds", "bowl", "--arms", "search", "random", "cma"]
    flats = []
    for name in ("one.json", "other.json"):
        assert landscapes.PROGRAM.main([*words, "--json", str(tmp_path / name)]) == 0
        flats.append(json.loads((tmp_path / name).read_text()))
    assert flats[0] == flats[1]
    assert {"search_8_share", "random_5_share", "cma_bowl_8_gain", "cma_5_crashes"} <= flats[0].keys()
    assert flats[0]["random_8_tried"] >= flats[0]["random_5_tried"], "a night goes on where it was at the mark"


def test_runs_that_repeat_an_attempt_count_as_runs():
    night, world = landscapes.night_of(landscapes.ARMS["steps"](0), "bowl", 0, "balanced", 12)
    history = night.simulate().history
    assert len(history[0].runs) >= 3, "the judge calibrates"
    assert sum(len(attempt.runs) for attempt in history) == 12
    assert world.outcome(history).attempts == len(history) <= 10


def test_with_several_workers_proposals_do_not_wait_for_results_and_no_run_is_lost():
    undecided = []

    def propose(briefing):
        undecided.append(sum(attempt.decision is None for attempt in briefing.history))
        return landscapes.ARMS["random"](0)(briefing)

    history = landscapes.night_of(propose, "loud", 0, "greedy", 24, workers=4)[0].simulate().history
    assert undecided[:4] == [0, 1, 2, 3]
    assert set(undecided[4:]) == {3}
    assert sum(len(attempt.runs) for attempt in history) == 24


def test_an_edit_that_was_overtaken_is_merged_and_has_to_win_again():
    night, _ = landscapes.night_of(landscapes.ARMS["random"](0), "quiet", 0, "greedy", 30, workers=8)
    history = night.simulate().history
    merges = [attempt for attempt in history if attempt.proposal.merges is not None]
    assert merges
    for attempt in merges:
        assert history[attempt.proposal.merges].kind is Kind.OVERTAKEN
        assert attempt.parent > history[attempt.proposal.merges].parent


@pytest.mark.parametrize("kind", landscapes.GAINS)
def test_a_landscape_holds_what_its_kind_says(kind):
    land = landscapes.Landscape(kind, 0)
    apart = landscapes.START - land.best
    assert (land.weight * apart**2).sum() == pytest.approx(landscapes.GAINS[kind], rel=0.15)
    assert not land.crashes(landscapes.START)


def test_edges_have_cliffs_on_both_sides_of_the_start():
    lands = [landscapes.Landscape("edges", seed) for seed in range(8)]
    assert all(len(land.cliffs) + len(land.drops) == len(landscapes.DIALS) // 4 for land in lands)
    land = next(land for land in lands if land.drops)
    dial, edge = land.drops[0]
    below = landscapes.START.copy()
    below[dial] = edge - 0.01
    assert land.crashes(below)


# ---- slow spells -----------------------------------------------------------------------------------------------------


def test_a_steady_machine_is_not_called_slow_and_a_large_loss_is_noticed():
    quiet, slow = (drift.simulate("h200", spell, 4, 1) for spell in ("none", "lost40"))
    assert quiet["h200_none_false_alarms"] < 0.01
    assert slow["h200_lost40_repeats_noticed"] > 0.9


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "words", "sentence"),
    [
        (landscapes, ["--workers", "4", "--arms", "tpe"], "name other --arms"),
        (drift, ["--quick", "--json", "/no/such/folder/file"], "name a file in a folder that exists"),
    ],
)
def test_misuse_is_told_in_a_sentence(program, words, sentence, capsys):
    assert program.PROGRAM.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{program.__name__}: ")
    assert sentence in said


@pytest.mark.parametrize(
    ("program", "words", "sentence"),
    [(landscapes, ["--runs", "1"], "1 is not above one"), (drift, ["--nights", "0"], "0 is not above zero")],
)
def test_numbers_that_mean_nothing_are_refused(program, words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        program.PROGRAM.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_benchmark_falls_short_by_its_exit_code(tmp_path):
    flat = {"lost": 1}
    program = measure.Program(
        "", lambda args, folder: flat, lambda args, flat: None, falls_short=lambda a, f: f["lost"]
    )
    assert program.main(["--json", str(tmp_path / "flat.json")]) == 1
    assert json.loads((tmp_path / "flat.json").read_text()) == flat
    flat["lost"] = 0
    assert program.main([]) == 0
