"""The benchmark of the judges: simulated nights through the very code that judges real ones."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import judge_power  # noqa: E402

from agent.experiment import Status, halves_of  # noqa: E402
from agent.judging.judges import Balanced, Greedy  # noqa: E402


def world(seed: int, mixture: str = "usual", heavy: bool = False) -> judge_power.World:
    return judge_power.World(seed, judge_power.MIXTURES[mixture], heavy)


def test_effects_are_mixed_as_said():
    effects = np.concatenate([world(seed).effects for seed in range(200)])
    assert (effects < 0).mean() == pytest.approx(0.70, abs=0.01)
    assert (effects == 0).mean() == pytest.approx(0.18, abs=0.01)
    assert effects[effects > 0].mean() == pytest.approx(1.5, abs=0.08)
    late = np.concatenate([world(seed, "rarer").effects[-5:] for seed in range(200)])
    assert (late > 0).mean() < 0.03
    nights = [world(seed, "sources") for seed in range(200)]
    effects, sources = (np.concatenate([getattr(one, name) for one in nights]) for name in ("effects", "sources"))
    assert [(effects[sources == k] > 0).mean() for k in (0, 1)] == pytest.approx([0.25, 0.03], abs=0.01)


def test_a_judge_that_is_not_told_the_sources_sees_one():
    told, untold = (judge_power.a_night(Greedy(), world(1, "sources"), told=told)[0] for told in (True, False))
    assert len({one.proposal.source for one in told}) == 2
    assert len({one.proposal.source for one in untold}) == 1


@pytest.mark.parametrize("heavy", [False, True])
def test_runs_move_by_one_sigma(heavy):
    here = world(3, heavy=heavy)
    attempt = judge_power.Attempt(0, None, judge_power.Proposal("", "", "", ""), "")
    for _ in range(1000):
        attempt = here.run(attempt, [attempt])
    assert np.std(attempt.scores_bpb) == pytest.approx(here.sigma_bpb, rel=0.2)


def test_every_night_spends_its_runs_and_every_policy_sees_the_same_edits():
    for judge in (Greedy(), Balanced()):
        history, _ = judge_power.a_night(judge, world(1))
        assert sum(len(attempt.runs) for attempt in history) == judge_power.RUNS
        chain = [attempt for attempt in history if attempt.status is Status.KEEP]
        assert [attempt.parent for attempt in chain[1:]] == [attempt.number for attempt in chain[:-1]]


def test_a_script_without_an_edit_lacks_its_effect():
    here = world(1)
    history, _ = judge_power.a_night(Greedy(), here)
    kept = [attempt for attempt in history if attempt.status is Status.KEEP]
    first, champion = kept[1], kept[-1]
    proposal = judge_power.Proposal("", "", "", "", without=(first.number,))
    question = judge_power.Attempt(len(history), champion.number, proposal, "")
    lost = here.merit(champion, history) - here.merit(question, history)
    assert lost == pytest.approx(here.effects[first.number])


def test_a_script_without_half_an_edit_lacks_the_effect_of_half_its_dials():
    here = world(1, "dials")
    assert [(here.dials > 0).sum(axis=1).max(), (here.dials < 0).sum(axis=1).max(), here.dials.shape[1]] == [2, 2, 8]
    for half, dials in zip(halves_of(5), (here.dials[5, :4], here.dials[5, 4:]), strict=True):
        assert here.worth(half) == pytest.approx(dials.sum())
    assert sum(map(here.worth, halves_of(5))) == pytest.approx(here.effects[5])
    assert judge_power.policies("dials") == ("greedy", "gate", "strict", "balanced", "undivided", "dawn")
    assert judge_power.policies("sources") == ("greedy", "gate", "strict", "untold", "balanced", "dawn")


@pytest.mark.slow
def test_the_quick_benchmark_writes_a_figure_for_every_policy(tmp_path):
    command = [
        sys.executable,
        BENCHMARKS / "judge_power.py",
        "--quick",
        "--nights",
        "2",
        "--json",
        tmp_path / "power.json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    flat = json.loads((tmp_path / "power.json").read_text())
    for policy in judge_power.POLICIES:
        for key in ("true_gain", "bias", "keeps", "worthless", "runs_per_attempt", "false_keeps_per_100"):
            assert isinstance(flat[f"{policy}_{key}"], int | float)
    assert flat["greedy_runs_per_attempt"] == 1.0
    assert flat["gate_runs_per_attempt"] == pytest.approx(3.0)
    assert flat["balanced_runs_per_attempt"] < flat["strict_runs_per_attempt"]
    assert flat["greedy_bias"] > abs(flat["balanced_bias"]) - 1
    assert "usual, Gaussian noise, 2 nights" in done.stdout
