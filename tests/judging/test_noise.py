"""What a night may believe of its noise, and of the runs that it did not finish."""

from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt

from agent.experiment import Attempt, Score, Status, Summary
from agent.judging.judges import Balanced
from agent.judging.noise import SUREST, doubt_of, measured, noise

SIGMA = 0.006
BASELINE = scored_attempt(0, 1.5, 1.506, 1.494, status=Status.KEEP, reason="baseline")


def test_noise_says_what_two_runs_can_tell_apart():
    assert noise(()) is noise((scored_attempt(0, 1.5, status=Status.KEEP),)) is None
    learnt = noise((scored_attempt(0, *(1.5 + 0.01 * k for k in (-1, 0, 1, 0.5, -0.5)), status=Status.KEEP),))
    assert learnt.runs == 5
    assert learnt.sigma_bpb == pytest.approx(0.008, rel=0.3)
    assert learnt.smallest_bpb == pytest.approx(2.77 * learnt.sigma_bpb, rel=0.01)


# ---- a baseline that hardly trains -----------------------------------------------------------------------------------


def trained(steps: int | None, *scores: float) -> Attempt:
    first = scored_attempt(0, *scores, status=Status.KEEP, reason="baseline")
    return replace(first, runs=tuple(replace(run, summary=Summary(num_steps=steps)) for run in first.runs))


CLOSE = 2.9512, 2.9515, 2.9510  # three runs of 24 steps, by luck


def test_one_run_is_never_certain_where_the_baseline_hardly_trains():
    """Each of these was 100 % sure of a gain, and kept after one run."""
    for val_bpb in (2.940, 2.9):
        candidate = scored_attempt(1, val_bpb, parent=0, status=None)
        fine = Balanced().judge(candidate, [trained(500, *CLOSE)])
        assert (fine.status, fine.sure > 0.99) == (Status.KEEP, True)
        doubted = Balanced().judge(candidate, [trained(24, *CLOSE)])
        assert (doubted.status, doubted.sure <= SUREST) == (None, True)
        again = scored_attempt(1, val_bpb, val_bpb + 0.0004, parent=0, status=None)
        assert Balanced().judge(again, [trained(24, *CLOSE)]).status is Status.KEEP
    assert doubt_of(trained(1, *CLOSE), SIGMA) == "one of its runs had 1 step"


# ---- long nights -----------------------------------------------------------------------------------------------------


def long_night(count: int) -> list[Attempt]:
    """Edits of attempt 0, of #7 once that is kept, and of #20 from then on."""
    rng = np.random.default_rng(3)
    kept, history, parent = {7: 1.47, 20: 1.45}, [BASELINE], 0
    for number in range(1, count):
        value = kept.get(number, 1.5 + 3 * SIGMA * rng.exponential())
        status = Status.KEEP if number in kept else Status.DISCARD
        history.append(scored_attempt(number, value, value + 0.001, parent=parent, status=status))
        parent = number if number in kept else parent
    return history


def test_a_long_night_is_learnt_from_by_its_latest_attempts_and_the_line_that_they_stand_on():
    for count in (2000, 2099):  # the oldest leave by the block
        numbers = [attempt.number for attempt in measured(long_night(count))]
        assert numbers == [0, 7, 20, *range(1700, count)]


def test_numbers_of_a_script_that_repeat_exactly_say_that_seeds_move_nothing_whichever_attempt_was_repeated():
    """A greedy night measures attempt 0 once, and a better edit again."""
    own = [scored_attempt(0, 4.0, status=Status.KEEP), scored_attempt(1, 2.0, 2.0, parent=0, status=Status.KEEP)]
    numbers = []
    for one in own:
        runs = (replace(run, score=Score(run.val_bpb, 1.0, is_reported=True)) for run in one.runs)
        numbers.append(replace(one, runs=tuple(runs)))
    learnt = noise(numbers)
    assert learnt is not None
    assert learnt.sigma_bpb == 0
