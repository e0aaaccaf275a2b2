"""Dawn: which run tells most, and what the runs have told."""

import dataclasses

import numpy as np
from judged import findings, next_run, scored_attempt, scored_run

from agent.experiment import Attempt, Findings, Status
from agent.judging.champion import Again, Without

SIGMA = 0.01
#  kept edits and what they truly bring, in sigma: attempt 2 is a passenger that was lucky
EFFECTS = {1: 4.0, 2: -0.3, 3: 5.0}


def night(rng: np.random.Generator) -> list[Attempt]:
    """Three keeps in a chain, the second of them by luck, and discarded children of each."""
    merits, luck = {0: 0.0}, {2: 2.0}
    for number, effect in EFFECTS.items():
        merits[number] = merits[number - 1] + effect
    history = [scored_attempt(0, *(1 + SIGMA * rng.normal(size=3)), status=Status.KEEP, reason="baseline")]
    for number in EFFECTS:
        value = 1 - SIGMA * (merits[number] + luck.get(number, rng.normal()))
        history.append(scored_attempt(number, value, parent=number - 1, status=Status.KEEP, reason="lower"))
    for parent, shortfall in ((0, 2), (0, 5), (1, 3), (1, 1.5), (2, 1), (2, 4), (3, 2), (3, 6)):
        value = 1 - SIGMA * (merits[parent] - shortfall + rng.normal())
        history.append(scored_attempt(len(history), value, parent=parent))
    return history


def merit(history: list[Attempt], attempt: Attempt) -> float:
    if attempt.proposal.without:
        return merit(history, history[3]) - sum(EFFECTS[k] for k in attempt.proposal.without)
    return sum(effect for number, effect in EFFECTS.items() if number <= attempt.number)


def dawn(
    history: list[Attempt],
    rng: np.random.Generator,
    runs: int,
    impossible: set[tuple[int, ...]],
) -> list[object]:
    """Does what is asked until nothing more is, and returns it."""
    asked: list[object] = []
    while (trial := next_run(history, runs, impossible=impossible)) is not None:
        asked.append(trial)
        if isinstance(trial, Without):
            history.append(scored_attempt(len(history), parent=3, without=trial.edits))
            continue
        attempt, runs = history[trial.attempt], runs - 1
        seed = 1000 + sum(run.dawn for run in attempt.runs)
        value = 1 - SIGMA * (merit(history, attempt) + rng.normal())
        run = scored_run(seed, value, dawn=1, holdout=value + 0.2)
        history[trial.attempt] = dataclasses.replace(attempt, runs=(*attempt.runs, run))
    return asked


def confirmed(seed: int, impossible: set[tuple[int, ...]] | None = None) -> tuple[list[object], Findings]:
    rng = np.random.default_rng(seed)
    history = night(rng)
    asked = dawn(history, rng, 30, impossible or set())
    found = findings(history, impossible=impossible or set())
    assert found is not None
    return asked, found


def test_the_champion_meets_attempt_0_first_in_turns_and_on_fresh_seeds():
    asked, found = confirmed(0)
    assert asked[:8] == [Again(0), Again(3)] * 4
    assert found.champion == 3


def test_the_lucky_passenger_is_found_and_the_others_stay():
    ends = [confirmed(seed) for seed in range(6)]
    assert sum(found.passengers == (2,) for _, found in ends) >= 5
    assert all(not {1, 3} & set(found.passengers) for _, found in ends)
    assert sum(Without((2,)) in asked for asked, _ in ends) >= 5
    assert all(Without((3,)) not in asked for asked, _ in ends)  # that is its parent, which is here


def test_what_cannot_be_taken_out_is_not_asked_for_and_not_dropped():
    for seed in range(3):
        asked, found = confirmed(seed, impossible={(2,)})
        assert Without((2,)) not in asked
        assert found.passengers == ()


# ---- what it may say -------------------------------------------------------------------------------------------------


def test_the_interval_of_the_honest_gain_holds_the_truth_19_times_in_20():
    truth = SIGMA * sum(EFFECTS.values())
    held = [found.honest.low_bpb <= truth <= found.honest.high_bpb for _, found in map(confirmed, range(20))]  # type: ignore[union-attr]
    assert sum(held) >= 17
