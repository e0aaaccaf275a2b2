"""The verdict: a pure function of scores."""

import dataclasses

import pytest
from judged import scored_attempt, scored_run

from agent.experiment import Attempt, Audit, Decision, Ending, Kind, Run, Score, Status
from agent.judging.failures import trusted
from agent.judging.judges import Balanced, Greedy, Strict
from agent.judging.noise import noise
from agent.records.summary import earned

KEPT = Decision(Kind.KEPT, "lower")
BASELINE = scored_attempt(0, 1.500, 1.506, 1.494, status=Status.KEEP, reason="baseline")


def candidate(number: int, *scores: float, parent: int = 0) -> Attempt:
    return scored_attempt(number, *scores, parent=parent, status=None)


def kept(number: int, *scores: float, parent: int = 0) -> Attempt:
    return scored_attempt(number, *scores, parent=None if number == 0 else parent, status=Status.KEEP)


def test_attempt_0_is_measured_until_the_noise_is_known():
    for judge, runs in ((Balanced(), 3), (Strict(), 4), (Greedy(), 1)):
        for done in range(1, runs + 1):
            kind = judge.judge(scored_attempt(0, *[1.5, 1.51, 1.49, 1.5][:done], status=None), ()).kind
            assert kind is (Kind.UNDECIDED if done < runs else Kind.BASELINE)


# ---- greedy ----------------------------------------------------------------------------------------------------------


def test_what_is_below_the_mean_of_the_last_keep_is_kept():
    better = Decision(Kind.KEPT, "0.250000 better than the incumbent")
    assert Greedy().judge(candidate(1, 1.25), (kept(0, 1.5),)) == better
    history = kept(0, 1.6), kept(1, 1.3, 1.5)
    assert Greedy().judge(candidate(2, 1.45, parent=1), history).status is Status.DISCARD
    assert Greedy().judge(candidate(2, 1.35, parent=1), history).status is Status.KEEP


def test_one_crashed_run_among_several_is_a_crash():
    good = candidate(1, 1.0)
    failed = Run(1, Ending.FINISHED, 0, 1.0, None, "", Score(None, 1.0, "no"))
    assert Greedy().judge(dataclasses.replace(good, runs=(*good.runs, failed)), (BASELINE,)).status is Status.CRASH


@pytest.mark.parametrize(
    ("scores", "status"),
    [((1.4, 1.45), None), ((1.4, 1.45, 1.46), Status.KEEP), ((1.4, 1.7), Status.DISCARD)],
)
def test_what_would_be_kept_is_confirmed_with_more_seeds_first(scores, status):
    assert Greedy(confirm=2).judge(candidate(1, *scores), (kept(0, 1.5),)).status is status


# ---- what no judge keeps ---------------------------------------------------------------------------------------------


def test_a_gain_beyond_the_plausible_is_not_kept():
    best = kept(0, 1.5)
    assert trusted(KEPT, candidate(1, 1.2), best, plausible=0.25) == KEPT
    doubted = trusted(KEPT, candidate(1, 1.0), best, plausible=0.25)
    assert doubted.kind is Kind.QUARANTINED
    assert doubted.reason.startswith("quarantine: better than the incumbent by 33%, more than 25%")


def test_one_failed_audit_is_enough():
    good = candidate(1, 1.4)
    wrong = dataclasses.replace(scored_run(1, 1.3), score=Score(1.3, 1.0, audit=Audit(256, 1.0, 1.0, "9 are wrong")))
    both = dataclasses.replace(good, runs=(*good.runs, wrong))
    assert trusted(KEPT, both, kept(0, 1.5)).reason == "audit: 9 are wrong"


def test_a_script_that_ignores_its_seed_is_not_kept_and_two_scores_that_agree_by_chance_are_no_sign_of_it():
    for judge in (Balanced(), Strict()):
        assert judge.judge(candidate(1, 1.4, 1.4), (BASELINE,)).kind is Kind.IGNORES_SEED
        assert judge.judge(candidate(1, 1.4, 1.4, 1.402), (BASELINE,)).kind is not Kind.IGNORES_SEED


# ---- balanced: what the whole night says -----------------------------------------------------------------------------


def worse(first: int, count: int, parent: int, val_bpb: float) -> list[Attempt]:
    """Discarded children of a parent: the best has this score, others are clearly worse."""
    more = (0.0, 0.02, 0.05, 0.012, 0.1, 0.03)
    return [scored_attempt(first + k, val_bpb + more[k % 6] + 0.001 * k, parent=parent) for k in range(count)]


def test_a_clear_gain_is_kept_at_once_and_a_small_one_asks_for_another_seed():
    clear = Balanced().judge(candidate(13, 1.40), [BASELINE, *worse(1, 12, parent=0, val_bpb=1.5)])
    assert clear.kind is Kind.KEPT
    assert clear.sure > 0.99
    assert clear.gain_bpb == pytest.approx(0.1, abs=0.01)
    later = [BASELINE, *worse(1, 40, parent=0, val_bpb=1.5)]  # by then most ideas have turned out to be worthless
    assert Balanced().judge(candidate(41, 1.492), later).status is None


def kept_by_luck(children: float) -> list[Attempt]:
    """A keep that children of so much more have followed."""
    lucky = scored_attempt(1, 1.486, parent=0, kind=Kind.PROVISIONAL)
    return [BASELINE, lucky, *worse(2, 10, parent=1, val_bpb=1.486 + children)]


def test_a_keep_is_revoked_or_confirmed_by_its_children():
    for children, kind in ((0.03, Kind.REVOKED), (-0.02, Kind.CONFIRMED)):
        assert Balanced().review(kept_by_luck(children)).decisions[1].kind is kind


def test_what_did_not_count_says_nothing():
    history = [BASELINE, *worse(1, 8, parent=0, val_bpb=1.5)]
    odd = [
        scored_attempt(9, 0.9, parent=0, kind=Kind.QUARANTINED),
        scored_attempt(10, 1.0, parent=0, kind=Kind.FAILED_AUDIT),
    ]
    tried = candidate(11, 1.49, 1.488)
    assert Balanced().judge(tried, [*history, *odd]) == Balanced().judge(tried, history)


# ---- strict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "status"),
    [
        ((1.40, 1.402), None),
        ((1.40, 1.402, 1.398), Status.KEEP),
        ((1.499, 1.502, 1.504), Status.DISCARD),
        ((1.49, 1.496, 1.494, 1.499, 1.491, 1.5), Status.DISCARD),
    ],
)
def test_strict_keeps_after_three_runs_at_the_earliest_and_asks_while_there_is_hope(scores, status):
    baseline = scored_attempt(0, 1.500, 1.506, 1.494, 1.501, status=Status.KEEP)
    assert Strict().judge(candidate(1, *scores), (baseline,)).status is status


# ---- the confirmation ------------------------------------------------------------------------------------------------


def test_what_the_confirmation_measures_is_not_for_the_night_to_judge_by():
    """Neither its verdicts, nor its noise, nor what its proposers have earned, nor what an attempt took."""
    history = kept_by_luck(children=0.0)
    confirming = tuple(scored_run(1000 + k, 1.2 + 0.01 * k, confirmation=1, holdout=1.3) for k in range(4))
    seen = [dataclasses.replace(attempt, runs=(*attempt.runs, *confirming)) for attempt in history]
    seen.append(scored_attempt(len(seen), parent=1, without=(1,), confirmation=(1.2, 1.3), kind=Kind.QUESTION))
    tried = candidate(len(seen), 1.39, 1.41)
    for judge in (Balanced(), Strict(), Greedy()):
        assert judge.review(seen) == judge.review(history)
        assert judge.judge(tried, seen) == judge.judge(tried, history)
    assert (noise(seen), earned(seen, ())) == (noise(history), earned(history, ()))
    assert (history[1].val_bpb, history[1].spent_s) == (seen[1].val_bpb, seen[1].spent_s)
