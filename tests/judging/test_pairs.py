"""Scores are compared seed by seed: what a seed does to all scripts that are alike is no gain of one of them."""

from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt, scored_run

from agent.experiment import Attempt, Status
from agent.judging.judges import Balanced
from agent.judging.noise import know, measured, noise
from agent.judging.pairs import OWN, Measured, shared_effects

SIGMA = 0.01
SEEDS = np.array([0.012, -0.009, 0.004, -0.013, 0.008, -0.002])  # effect of each seed on every script, in bits per byte
LITTLE = np.array([0.0004, -0.0007, 0.0002, 0.0005, -0.0003, -0.0001])  # noise that is left


def script(merit: float, left: np.ndarray, runs: int = 6, *, shares: bool = True) -> Measured:
    own = left if shares else 12 * left[::-1]
    return Measured(dict(enumerate(((SEEDS if shares else 0) + merit + own)[:runs].tolist())), dials_only=True)


def test_what_seeds_do_is_found_from_scripts_that_were_run_more_than_once():
    shared = shared_effects([script(1.5, LITTLE), script(1.6, -LITTLE), script(1.4, LITTLE, 1)], SIGMA)
    effects = np.array([shared.effects[seed] for seed in range(6)]) * SIGMA
    assert effects == pytest.approx(SEEDS - SEEDS.mean(), abs=0.002)
    assert shared.share[True] > 2 / 3
    assert all(variance < OWN for variance in shared.variances.values())


def test_a_seed_that_the_first_script_never_had_tells_as_little_as_it_should():
    shared = shared_effects([script(1.5, LITTLE, 3), Measured({7: 1.6}, dials_only=True)], SIGMA)
    assert shared.effects[7] == pytest.approx(0, abs=0.1)
    assert shared.variances[7] == pytest.approx((1 - OWN) * 4 / 3, rel=0.1)  # own, and that of the others' mean


def test_scripts_that_share_nothing_teach_that():
    others = [script(1.5 + 0.1 * k, np.roll(LITTLE, k), 3, shares=False) for k in range(5)]
    shared = shared_effects([script(1.5, LITTLE), *others], SIGMA)
    assert shared.share[True] < 0.5
    assert shared.share[False] == pytest.approx(0.4)  # the prior: no such pair was seen


# ---- what a judge makes of it ----------------------------------------------------------------------------------------


def attempt(
    number: int, merit: float, runs: int = 1, *, own: float = 0.0, status: Status | None = Status.DISCARD
) -> Attempt:
    scores = SEEDS[:runs] + merit + own * LITTLE[:runs]
    return scored_attempt(
        number, *scores.tolist(), parent=None if number == 0 else 0, status=status, script="RATE = 1\n"
    )


FIRST = attempt(0, 1.5, 4, status=Status.KEEP)
REPEATED = attempt(1, 1.51, 3, own=-1), attempt(2, 1.505, 2, own=1)  # they teach that scripts share seeds' effects


def test_a_gain_below_sigma_is_surer_where_it_is_the_same_with_each_seed():
    paired = attempt(3, 1.494, 3, own=-1, status=None)
    mean = float(np.mean(paired.scores_bpb))
    scattered = scored_attempt(3, mean + 0.009, mean - 0.019, mean + 0.01, parent=0, status=None, script="RATE = 1\n")
    sure, less = (Balanced().judge(one, [FIRST, *REPEATED]) for one in (paired, scattered))
    assert sure.sure is not None
    assert less.sure is not None
    assert sure.sure > max(0.8, less.sure + 0.05)
    assert sure.status is Status.KEEP


def test_where_the_same_seeds_point_the_other_way_the_verdict_says_both():
    worse = replace(attempt(3, 1.5, status=None), runs=(scored_run(3, 1.51 + SEEDS[3]),))
    verdict = Balanced().judge(worse, [FIRST, *REPEATED])
    assert verdict.reason.startswith("0.001500 better than its parent, but 0.010000 worse over the seeds that both ran")


def test_a_lucky_seed_makes_no_gain():
    """Seed 3 makes every script better by more than sigma."""
    lucky = attempt(3, 1.5, status=None)
    lucky = replace(lucky, runs=(scored_run(3, 1.5 + SEEDS[3]),))
    knowledge = know(measured([FIRST, *REPEATED], lucky))
    assert knowledge is not None
    assert knowledge.effect(3).sure < 0.6


def test_noise_says_what_two_runs_with_one_seed_can_tell_apart():
    learnt = noise([FIRST, *REPEATED])
    assert learnt is not None
    assert learnt.paired_bpb is not None
    assert learnt.paired_bpb < 0.7 * learnt.smallest_bpb
