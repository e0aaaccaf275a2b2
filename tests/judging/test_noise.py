"""What a night may believe of its noise, and of the runs that it did not finish."""

from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt, stopped_attempt
from samples import NIGHT, status_lines

from agent.experiment import Attempt, Noise, Status, Summary
from agent.judging.judges import Balanced, Strict
from agent.judging.noise import BLOCK, LATEST, SUREST, ceiling_bpb, know, measured, noise
from agent.view.words import noise_lines

SIGMA = 0.006
BASELINE = scored_attempt(0, 1.5, 1.506, 1.494, status=Status.KEEP, reason="baseline")


# ---- sources ---------------------------------------------------------------------------------------------------------


def test_a_source_has_one_record_whichever_model_answers_and_dawns_is_none_of_it():
    def weights(*sources: str) -> np.ndarray:
        edits = [
            scored_attempt(1 + k, 1.5 + (0.05 if k % 2 else -0.02), parent=0, source=source)
            for k, source in enumerate(sources)
        ]
        known = know([BASELINE, *edits])
        assert known is not None
        return known.belief.weights[1:]

    assert weights("llm:one", "search", "llm:other", "search") == pytest.approx(
        weights("llm", "search", "llm", "search")
    )
    good, bad, _ = weights("llm", "search", "dawn")
    assert not np.allclose(good, bad)
    assert not np.allclose(good, weights("llm", "search", "llm")[0])


# ---- runs that were ended early --------------------------------------------------------------------------------------


def night(seed: int, cut: float) -> tuple[list[Attempt], list[Attempt]]:
    """Thirty edits of attempt 0, most of which do harm; and the same night with the runs above cut ended early."""
    rng = np.random.default_rng(seed)
    harms = [3 * SIGMA * rng.exponential() if rng.random() < 0.8 else 0.0 for _ in range(30)]
    scores = [1.5 + harm + SIGMA * rng.normal() for harm in harms]
    finished = [scored_attempt(1 + k, value, parent=0) for k, value in enumerate(scores)]
    stopped = [one if one.val_bpb < cut else stopped_attempt(one.number, parent=0) for one in finished]
    return [BASELINE, *finished], [BASELINE, *stopped]


def believed(history: list[Attempt]) -> tuple[float, float]:
    """Gain in sigma and sureness of a promising edit that is measured once."""
    attempt = scored_attempt(31, 1.489, parent=0, status=None)
    known = know(measured(history, attempt))
    effect = known.effect(31)
    return effect.mean * known.sigma_bpb / SIGMA, effect.sure


def test_runs_that_were_ended_early_are_not_left_out_of_what_edits_bring():
    gains, sures = [], []
    for seed in range(6):
        finished, stopped = night(seed, cut=1.504)
        told = [believed(history) for history in (finished, stopped, [one for one in stopped if one.scores_bpb])]
        (whole, sure), (censored, surely), (without, unsure) = told
        assert without < censored
        assert unsure < surely
        gains.append((abs(censored - whole), abs(without - whole)))
        sures.append((abs(surely - sure), abs(unsure - sure)))
    for errors in (gains, sures):
        as_observed, left_out = np.mean(errors, axis=0)
        assert as_observed < 0.7 * left_out


@pytest.mark.filterwarnings("error")
def test_runs_that_were_ended_early_do_not_move_sigma():
    rng = np.random.default_rng(1)
    attempts = [
        scored_attempt(k, *(1.5 + 0.05 * k + rng.normal(0, 0.01, size=4)), parent=0 if k else None) for k in range(6)
    ]
    stopped = [stopped_attempt(6 + k, parent=0) for k in range(4)]
    assert noise([*attempts, *stopped]) == noise(attempts)
    between = [*attempts[:3], *(replace(one, number=3 + k) for k, one in enumerate(stopped[:2]))]
    later = [replace(one, number=one.number + 2) for one in attempts[3:]]
    assert noise([*between, *later]).sigma_bpb == pytest.approx(noise(attempts).sigma_bpb, rel=0.11)  # a rung


def test_what_was_ended_early_is_worse_than_its_parent_was_then_not_than_it_is_now():
    """A lucky parent turned out to be worse: its children had to be above its first score only."""
    kept = scored_attempt(1, 1.480, 1.510, 1.510, parent=0, status=Status.KEEP)
    once = replace(kept, runs=kept.runs[:1])
    assert [ceiling_bpb(parent) for parent in (kept, once, BASELINE)] == pytest.approx([1.480, 1.480, 1.5])


def test_an_attempt_that_crashed_is_still_no_measurement():
    crashed = scored_attempt(1, parent=0, status=Status.CRASH)
    assert measured([BASELINE, crashed, stopped_attempt(2, parent=0), stopped_attempt(3, parent=1)]) == (
        BASELINE,
        stopped_attempt(2, parent=0),
    )
    made_of_it = stopped_attempt(3, parent=2)  # by hand: there is no score that it was to be compared with
    assert measured([BASELINE, crashed, stopped_attempt(2, parent=0), made_of_it])[1:] == (
        stopped_attempt(2, parent=0),
    )


# ---- a baseline that hardly trains -----------------------------------------------------------------------------------


def trained(steps: int | None, *scores: float) -> Attempt:
    first = scored_attempt(0, *scores, status=Status.KEEP, reason="baseline")
    return replace(first, runs=tuple(replace(run, summary=Summary(num_steps=steps)) for run in first.runs))


CLOSE = 2.9512, 2.9515, 2.9510  # three runs of 24 steps, by luck


def test_one_run_is_never_certain_where_the_baseline_hardly_trains():
    """Each of these was 100 % sure of a gain, and kept after one run."""
    for val_bpb in (2.940, 2.93, 2.9):
        candidate = scored_attempt(1, val_bpb, parent=0, status=None)
        fine = Balanced().judge(candidate, [trained(500, *CLOSE)])
        assert fine.status is Status.KEEP
        assert fine.sure > 0.99
        decision = Balanced().judge(candidate, [trained(24, *CLOSE)])
        assert decision.status is None
        assert decision.sure <= SUREST
        worse = scored_attempt(1, 2 * CLOSE[0] - val_bpb, parent=0, status=None)
        assert Balanced().judge(worse, [trained(24, *CLOSE)]).sure >= 1 - SUREST
        again = scored_attempt(1, val_bpb, val_bpb + 0.0004, parent=0, status=None)
        assert Balanced().judge(again, [trained(24, *CLOSE)]).status is Status.KEEP


def test_sigma_is_doubled_for_every_judge():
    fine, doubted = (noise([trained(steps, *CLOSE)]) for steps in (50, 49))
    assert doubted.sigma_bpb == pytest.approx(2 * fine.sigma_bpb, rel=0.05)
    assert (fine.doubt, doubted.doubt) == (None, "its runs have 49 steps")
    candidate = scored_attempt(1, 2.9505, 2.9502, 2.9504, parent=0, status=None)
    kept, asked = (Strict().judge(candidate, [trained(steps, *CLOSE, 2.9513)]) for steps in (500, 24))
    assert kept.status is Status.KEEP
    assert asked.sure < kept.sure


def test_what_is_hardly_better_than_guessing_bytes_is_told_by_its_noise():
    assert noise([trained(None, 7.9, 7.93, 7.95)]).doubt == "it is 0.073 bpb better than guessing"
    assert noise([trained(None, 1.5, 1.53, 1.55)]).doubt is None
    assert noise([trained(500, 8.1, 8.13, 8.15)]).doubt == "it is 0.000 bpb better than guessing"


def test_the_night_says_what_to_do_about_it():
    first = [trained(24, *CLOSE)]
    told = noise_lines(noise(first))
    assert told[1].startswith("the baseline hardly trains (its runs have 24 steps)")
    assert "σ is doubled, and every keep needs several runs" in told[1]
    assert "a longer --budget-s or a smaller model" in told[1]
    assert len(noise_lines(Noise(0.006, 3, 0.016))) == 1
    status = status_lines(NIGHT, first)
    assert [line for line in status if line in told] == told  # as lines of their own


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


def test_a_night_of_some_hundred_attempts_is_learnt_from_as_a_whole():
    history = long_night(LATEST + BLOCK - 1)
    assert len(measured(history)) == len(history)


def test_a_long_night_is_learnt_from_by_its_latest_attempts_and_the_line_that_they_stand_on():
    history = long_night(2000)
    numbers = [one.number for one in measured(history)]
    assert numbers == [0, 7, 20, *range(1700, 2000)]
    more = [one.number for one in measured([*history, *(replace(history[-1], number=n) for n in range(2000, 2099))])]
    assert more[:4] == [0, 7, 20, 1700]  # the oldest leave by the block
    judged = Balanced().judge(scored_attempt(2000, 1.44, parent=20, status=None), history)
    assert judged.gain_bpb > 0
    assert Balanced().review(history).again is None


def test_the_line_is_found_where_numbers_are_missing():
    history = [one for one in long_night(2000) if one.number % 10 != 5]
    assert [one.number for one in measured(history)][:3] == [0, 7, 20]
