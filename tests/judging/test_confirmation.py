"""Dawn: which run tells most, and what the runs have told."""

import dataclasses

import numpy as np
import pytest
from judged import findings, next_run, scored_attempt, scored_run

from agent.experiment import Attempt, Ending, Status, incumbent
from agent.judging.champion import Again, Without
from agent.judging.findings import Findings
from agent.judging.intervals import Spread

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


def confirmed(
    seed: int, runs: int = 30, impossible: set[tuple[int, ...]] | None = None
) -> tuple[list[object], Findings]:
    rng = np.random.default_rng(seed)
    history = night(rng)
    asked = dawn(history, rng, runs, impossible or set())
    found = findings(history, impossible=impossible or set())
    assert found is not None
    return asked, found


def test_a_night_that_kept_nothing_has_nothing_to_confirm():
    history = [scored_attempt(0, 1.0, 1.01, status=Status.KEEP), scored_attempt(1, 1.2, parent=0)]
    assert next_run(history, 30) is None
    assert findings(history) is None


def test_the_champion_meets_attempt_0_first_in_turns_and_on_fresh_seeds():
    asked, found = confirmed(0)
    assert asked[:8] == [Again(0), Again(3)] * 4
    assert found.champion == 3


def test_no_run_is_asked_for_beyond_those_that_are_left():
    for runs in (0, 1, 5, 12):
        asked, _ = confirmed(1, runs)
        assert sum(isinstance(trial, Again) for trial in asked) <= runs


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


def test_what_the_champion_does_not_run_without_is_no_passenger():
    history = night(np.random.default_rng(0))
    for number in (0, 3):
        dawn_runs = tuple(scored_run(1000 + k, history[number].scores_bpb[0], dawn=1) for k in range(4))
        history[number] = dataclasses.replace(history[number], runs=history[number].runs + dawn_runs)
    assert next_run(history, 20) == Without((2,))
    crashed = scored_attempt(len(history), 1.0, parent=3, without=(2,))
    failed = dataclasses.replace(crashed.runs[0], ending=Ending.CRASHED, exit_code=1, score=None, dawn=1)
    history.append(dataclasses.replace(crashed, runs=(failed,)))
    found = findings(history)
    assert found is not None
    assert found.passengers == ()
    assert next_run(history, 20) not in (Without((2,)), Again(crashed.number))


# ---- what it may say -------------------------------------------------------------------------------------------------


def test_the_interval_of_the_honest_gain_holds_the_truth_19_times_in_20():
    truth = SIGMA * sum(EFFECTS.values())
    held = [found.honest.low_bpb <= truth <= found.honest.high_bpb for _, found in map(confirmed, range(20))]  # type: ignore[union-attr]
    assert sum(held) >= 17


def test_the_holdout_has_an_interval_of_its_own():
    _, found = confirmed(0)
    assert found.honest is not None
    assert found.holdout is not None
    assert found.holdout.mean_bpb == pytest.approx(found.honest.mean_bpb)  # 0.2 above for both
    history = night(np.random.default_rng(0))
    before = findings(history)
    assert before is not None
    assert before.honest is before.holdout is before.dropping is None


def test_the_recorded_gain_is_of_the_nights_runs_alone():
    rng = np.random.default_rng(3)
    history = night(rng)
    before = findings(history)
    dawn(history, rng, 30, set())
    after = findings(history)
    assert before is not None
    assert after is not None
    assert after.recorded_bpb == before.recorded_bpb
    assert after.believed_bpb == before.believed_bpb


def test_where_seeds_move_nothing_the_scores_say_all():
    history = [
        scored_attempt(0, 1.0, 1.0, 1.0, status=Status.KEEP, reason="baseline"),
        scored_attempt(1, 0.9, parent=0, status=Status.KEEP, reason="lower"),
    ]
    assert incumbent(history) is history[1]
    for number in (0, 1):
        fresh = tuple(scored_run(1000 + k, history[number].scores_bpb[0], dawn=1) for k in range(4))
        history[number] = dataclasses.replace(history[number], runs=history[number].runs + fresh)
    found = findings(history)
    assert next_run(history, 10) is None
    assert found is not None
    assert found.honest is not None
    assert (found.honest.low_bpb, found.honest.high_bpb) == pytest.approx((0.1, 0.1))
    assert found.passengers == ()


# ---- what the text adds ----------------------------------------------------------------------------------------------


def without_luck(on_validation: float, on_holdout: float) -> list[Attempt]:
    """A night and its dawn in which seeds move nothing: a champion with these gains."""
    return [
        dataclasses.replace(
            one,
            runs=(*one.runs, *(scored_run(1000 + k, bpb, dawn=1, holdout=held) for k in range(4))),
        )
        for one, bpb, held in (
            (scored_attempt(0, 1.0, 1.0, 1.0, status=Status.KEEP), 1.0, 1.2),
            (scored_attempt(1, 0.9, parent=0, status=Status.KEEP), 1.0 - on_validation, 1.2 - on_holdout),
        )
    ]


def texts(error_bpb: float) -> dict[str, Spread]:
    return dict.fromkeys(("validation", "holdout"), Spread(error_bpb, 200))


def test_two_texts_of_which_each_is_a_sample_raise_no_alarm_for_a_small_difference():
    history = without_luck(0.1000, 0.0993)
    found = findings(history, texts=texts(0.001))
    assert found is not None
    assert found.fitted is not None
    assert found.fitted.mean_bpb == pytest.approx(0.0007)
    assert not found.is_fitted
    assert found.over == "the choice of seeds and of 201 pieces of text"
    assert found.holdout is not None
    assert found.holdout.high_bpb - found.holdout.low_bpb == pytest.approx(2 * 1.972 * 0.001, rel=1e-3)
    assert found.honest is not None
    assert found.honest.high_bpb == pytest.approx(found.honest.low_bpb)


def test_a_night_that_has_fitted_its_validation_text_raises_one():
    found = findings(without_luck(0.1000, 0.0900), texts=texts(0.001))
    assert found is not None
    assert found.is_fitted
    better_there = findings(without_luck(0.0900, 0.1000), texts=texts(0.001))
    assert better_there is not None
    assert not better_there.is_fitted


def test_without_the_losses_there_is_no_alarm():
    found = findings(without_luck(0.1000, 0.0900))
    assert found is not None
    assert (found.fitted, found.is_fitted, found.over) == (None, False, "the choice of seeds")


def test_what_a_seed_does_on_both_texts_alike_is_no_sign_of_either():
    rng = np.random.default_rng(1)
    history = night(rng)
    for number in (0, 3):
        runs = tuple(scored_run(1000 + k, bpb := 1 + SIGMA * rng.normal(), dawn=1, holdout=bpb + 0.2) for k in range(4))
        history[number] = dataclasses.replace(history[number], runs=history[number].runs + runs)
    found = findings(history, texts=texts(0.0001))
    assert found is not None
    assert found.fitted is not None
    assert found.fitted.high_bpb - found.fitted.low_bpb < 0.1 * SIGMA
