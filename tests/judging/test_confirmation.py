"""Confirmation: which run tells most, and what the runs have told."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from judged import ablation, findings, scored_attempt, scored_run

from agent.experiment import Attempt, Ending, Kind, Run, Status
from agent.findings import Findings

SIGMA = 0.01
#  kept edits and what they truly bring, in sigma: attempt 2 is an edit without effect that was lucky
EFFECTS = {1: 4.0, 2: -0.3, 3: 5.0}


def night(rng: np.random.Generator) -> list[Attempt]:
    """Three keeps in a chain, the second of them by luck, and discarded children of each."""
    merits, luck = {0: 0.0}, {2: 1.4}
    history = [scored_attempt(0, *(1 + SIGMA * rng.normal(size=5)), status=Status.KEEP)]
    for number, effect in EFFECTS.items():
        merits[number] = merits[number - 1] + effect
        value = 1 - SIGMA * (merits[number] + luck.get(number, rng.normal()))
        history.append(scored_attempt(number, value, parent=number - 1, status=Status.KEEP, script=f"use({number})\n"))
    for parent, shortfall in ((0, 2), (0, 5), (1, 3), (1, 1.5), (2, 1), (2, 4), (3, 2), (3, 6)):
        value = 1 - SIGMA * (merits[parent] - shortfall + rng.normal())
        history.append(scored_attempt(len(history), value, parent=parent, script=f"use({len(history)})\n"))
    return history


def merit(attempt: Attempt) -> float:
    number, without = (3, attempt.proposal.without) if attempt.proposal.without else (attempt.number, ())
    return sum(effect for edit, effect in EFFECTS.items() if edit <= number and edit not in without)


@cache
def confirmed(seed: int) -> tuple[list[object], Findings]:
    """Do what the confirmation asks for until nothing more is; return that, and what it found."""
    rng, asked, runs = np.random.default_rng(seed), [], 30
    history = night(rng)
    while (trial := ablation(history).next_run(runs)) is not None:
        asked.append(trial)
        if isinstance(trial, tuple):
            history.append(scored_attempt(len(history), parent=3, without=trial))
            continue
        attempt, runs = history[trial], runs - 1
        value = 1 - SIGMA * (merit(attempt) + rng.normal())
        run = scored_run(1000 + len(attempt.confirmation_runs()), value, confirmation=1, holdout=value + 0.2)
        history[trial] = dataclasses.replace(attempt, runs=(*attempt.runs, run))
    return asked, findings(history)


def test_the_best_script_meets_attempt_0_first_in_turns_and_on_fresh_seeds():
    asked, outcome = confirmed(0)
    assert asked[:8] == [0, 3] * 4
    assert outcome.best == 3


def test_the_lucky_edit_without_effect_is_found_and_the_others_stay():
    ends = [confirmed(seed) for seed in range(12)]
    assert sum(outcome.without_effect == (2,) and (2,) in asked for asked, outcome in ends) >= 8
    assert all(not {1, 3} & set(outcome.without_effect) for _, outcome in ends)
    assert all((3,) not in asked for asked, _ in ends)  # the script without 3 is its parent, which has runs already


def test_the_interval_of_the_honest_gain_holds_the_truth_19_times_in_20():
    truth = SIGMA * sum(EFFECTS.values())
    gains = [confirmed(seed)[1].honest for seed in range(20)]
    assert sum(honest.low_bpb <= truth <= honest.high_bpb for honest in gains) >= 17


# ---- which script is confirmed ---------------------------------------------------------------------------------------


def with_two_edits_without_effect(*last: Run) -> list[Attempt]:
    """Two edits that the best script is as good without, each by itself; and these runs without both."""

    def scores(merit: float, count: int) -> tuple[float, ...]:
        return tuple(1 - SIGMA * (merit + error) for error in (-0.8, 0.8, -0.2, 0.3)[:count])

    history = [
        scored_attempt(
            k,
            *scores(merit, 3),
            parent=k - 1 if k else None,
            status=Status.KEEP,
            confirmation=scores(merit, confirmation),
        )
        for k, (merit, confirmation) in enumerate([(0.0, 4), (4.0, 0), (4.2, 0), (4.4, 0), (10.0, 4)])
    ]
    for number, edit in ((5, 2), (6, 3)):
        history.append(scored_attempt(number, parent=4, without=(edit,), confirmation=scores(11.0, 4)))
    return [*history, dataclasses.replace(scored_attempt(7, parent=4, without=(2, 3), kind=Kind.QUESTION), runs=last)]


GOOD = [scored_run(seed, 0.89, confirmation=1) for seed in (1000, 1001)]
CRASHED = dataclasses.replace(GOOD[1], ending=Ending.CRASHED, exit_code=1, score=None)


@pytest.mark.parametrize(
    ("last", "without_effect", "script"), [(GOOD, (2, 3), 7), (GOOD[:1], (), 4), ([GOOD[0], CRASHED], (), 4)]
)
def test_the_script_without_the_edits_that_have_no_effect_is_confirmed_once_it_has_run_well_twice(
    last, without_effect, script
):
    outcome = findings(with_two_edits_without_effect(*last))
    assert (outcome.without_effect, outcome.script) == (without_effect, script)
    assert (outcome.stays or "not dropped: #2 and #3").startswith("not dropped: #2 and #3")
    assert (outcome.stays is None) == bool(without_effect)


@pytest.mark.parametrize(
    ("gains", "script"), [((4.0, 5.0, 4.5, 5.5), 1), ((-8.0, 8.0, 9.0, -7.0), None), ((-4.0, -5.0, -4.5, -5.5), None)]
)
def test_a_gain_that_may_be_none_confirms_nothing(gains, script):
    history = [
        scored_attempt(0, 1.0, 1.01, status=Status.KEEP, confirmation=(1.0, 1.001, 0.999, 1.0)),
        scored_attempt(1, 0.9, parent=0, status=Status.KEEP, confirmation=tuple(1.0 - SIGMA * gain for gain in gains)),
    ]
    assert findings(history).script == script
