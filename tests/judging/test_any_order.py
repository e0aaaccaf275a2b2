"""Attempts end in any order: each is compared with its own parent, and one that was overtaken has to win again."""

from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt, stopped_attempt

from agent.experiment import Attempt, Decision, Entry, History, Judge, Kind, Status, Weights
from agent.judging.judges import Balanced, Greedy, Strict
from agent.judging.noise import know, measured

SIGMA = 0.006
BASELINE = scored_attempt(0, 1.500, 1.506, 1.494, 1.501, status=Status.KEEP, kind=Kind.BASELINE)
BEST = scored_attempt(1, 1.400, 1.401, 1.399, parent=0, status=Status.KEEP)
JUDGES = Greedy(), Strict(), Balanced()


def losers(first: int, count: int, parent: int, val_bpb: float) -> list[Attempt]:
    more = (0.02, 0.05, 0.012, 0.1, 0.03)
    return [scored_attempt(first + k, val_bpb + more[k % 5] + 0.001 * k, parent=parent) for k in range(count)]


NIGHT = [BASELINE, BEST, *losers(2, 10, 0, 1.5)]


def undecided(number: int, *scores: float, parent: int = 0, **more: object) -> Attempt:
    return scored_attempt(number, *scores, parent=parent, status=None, **more)  # type: ignore[arg-type]


# ---- the parent is no longer the incumbent ---------------------------------------------------------------------------


@pytest.mark.parametrize("judge", JUDGES)
def test_what_is_better_than_its_overtaken_parent_is_to_be_merged_though_it_is_worse_than_the_best(judge):
    decision = judge.judge(undecided(12, 1.45), NIGHT)
    assert (decision.kind, decision.status) == (Kind.OVERTAKEN, Status.DISCARD)
    assert decision.reason.endswith("; to be merged onto #1")
    assert "below its parent" in decision.reason


def test_of_two_edits_of_one_script_the_one_that_brings_less_is_measured_again():
    history = [*NIGHT, undecided(13, 1.5)]
    for judge in (Greedy(), Strict()):
        assert judge.judge(undecided(12, 1.30), history).kind is Kind.OVERTAKEN
    better = Balanced().judge(undecided(12, 1.30), history)
    assert better.kind is Kind.KEPT
    assert better.reason.endswith("below its parent, >99% sure, and better than #1")
    assert Balanced().judge(undecided(12, 1.3995), history).kind is Kind.OVERTAKEN
    now = [*NIGHT, later(scored_attempt(12, 1.30, parent=0, status=Status.KEEP))]
    review = Balanced().review(now)
    assert set(review.decisions) == {1}
    assert (review.decisions[1].kind, review.again) == (Kind.OVERTAKEN, None)
    assert review.decisions[1].reason.endswith("; to be merged onto #12")


def later(attempt: Attempt) -> Attempt:
    """Decided after those that have no entry."""
    assert attempt.decision is not None
    return replace(attempt, decisions=(Entry(99, None, attempt.decision),))


@pytest.mark.parametrize("judge", JUDGES)
def test_a_clear_loser_is_worse_than_its_own_parent(judge):
    decision = judge.judge(undecided(12, 1.56), NIGHT)
    assert decision.kind is Kind.WORSE
    assert "above its parent" in decision.reason


def test_the_gain_is_that_over_the_parent_and_shrunk():
    decision = Balanced().judge(undecided(12, 1.45), NIGHT)
    assert decision.gain_bpb == pytest.approx(0.05, abs=0.004)
    assert decision.sure > 0.99
    assert decision.reason.startswith(f"an estimated {decision.gain_bpb:.6f} below its parent, >99% sure")


def test_no_seed_is_spent_on_what_cannot_be_kept():
    """Where another seed would pay, the run of the merged attempt tells as much; if it promises enough for a run."""
    later = [BASELINE, *losers(1, 40, 0, 1.5)]
    best = scored_attempt(41, 1.40, 1.401, parent=0, status=Status.KEEP)
    for value, kind in ((1.496, Kind.LUCK), (1.490, Kind.OVERTAKEN)):
        assert Balanced().judge(undecided(41, value), later).status is None
        assert Balanced().judge(undecided(42, value), [*later, best]).kind is kind
    strict = Strict().judge(undecided(12, 1.49), [BASELINE, *NIGHT[2:]])
    assert strict.status is None
    assert Strict().judge(undecided(12, 1.49), NIGHT).kind is Kind.OVERTAKEN


def test_where_seeds_move_nothing_one_run_tells_all():
    exact = scored_attempt(0, 1.5, 1.5, 1.5, status=Status.KEEP)
    for value, kind in ((1.4999, Kind.OVERTAKEN), (1.5, Kind.TIE), (1.6, Kind.WORSE)):
        assert Balanced().judge(undecided(2, value), [exact, BEST]).kind is kind


def test_what_is_simpler_at_the_same_score_is_merged_as_well():
    script, shorter = "A = 1\nB = 2\nC = 3\nD = 4\n", "A = 1\n"
    sizes = Weights(100, 400)
    first = scored_attempt(0, 1.5, 1.506, 1.494, status=Status.KEEP, script=script, weights=sizes)
    others = [first, BEST, *losers(2, 30, 0, 1.5)]
    tie = undecided(32, 1.5, 1.5004, script=shorter, weights=sizes)
    decision = Balanced().judge(tie, others)
    assert decision.kind is Kind.OVERTAKEN
    assert decision.reason.startswith("simpler: ")


# ---- the parent is not kept any more ---------------------------------------------------------------------------------


def fallen(kind: Kind, val_bpb: float = 1.4) -> list[Attempt]:
    scores = (val_bpb, val_bpb + 0.001, val_bpb - 0.001)
    return [BASELINE, scored_attempt(1, *scores, parent=0, kind=kind), *losers(2, 10, 0, 1.5)]


@pytest.mark.parametrize("judge", JUDGES)
def test_an_edit_of_a_revoked_script_is_worth_as_much_in_another(judge):
    for kind in (Kind.REVOKED, Kind.PASSENGER):
        decision = judge.judge(undecided(12, 1.53, parent=1), fallen(kind, 1.58))
        assert decision.kind is Kind.OVERTAKEN
        assert decision.reason.endswith("to be merged onto #0")
        assert judge.judge(undecided(12, 1.61, parent=1), fallen(kind, 1.58)).kind is Kind.WORSE


def test_where_it_makes_up_for_the_revoked_edit_both_are_kept():
    assert Balanced().judge(undecided(12, 1.40, parent=1), fallen(Kind.REVOKED, 1.58)).kind is Kind.KEPT


@pytest.mark.parametrize("judge", JUDGES)
def test_an_edit_of_a_script_whose_score_is_not_believed_cannot_be_compared(judge):
    for kind in (Kind.FAILED_AUDIT, Kind.QUARANTINED, Kind.CRASHED):
        decision = judge.judge(undecided(12, 1.35, parent=1), fallen(kind))
        assert decision == Decision(Kind.ORPHANED, "made from #1, whose scores do not count any more")


# ---- a merged attempt ------------------------------------------------------------------------------------------------

OVERTAKEN = scored_attempt(12, 1.475, parent=0, kind=Kind.OVERTAKEN)


def test_a_merged_edit_is_expected_to_bring_what_it_brought_before_but_has_to_win_again():
    history = [*NIGHT, OVERTAKEN]
    for value, keeps in ((1.375, True), (1.41, False)):
        again = undecided(13, value, parent=1, merges=12)
        decision, fresh = (Balanced().judge(one, history) for one in (again, undecided(13, value, parent=1)))
        assert (decision.status is Status.KEEP) is keeps
        assert decision.sure > fresh.sure


def test_a_merged_edit_does_not_count_twice_for_what_edits_bring():
    history = [*NIGHT, OVERTAKEN]
    again = scored_attempt(13, 1.376, parent=1, status=Status.KEEP)
    once, twice, merged = (
        know(measured(one)).belief.weights[0]  # type: ignore[union-attr]
        for one in (history, [*history, again], [*history, replace(again, proposal=merging(again, 12))])
    )
    assert np.abs(merged - once).sum() < 0.2 * np.abs(twice - once).sum()


def merging(attempt: Attempt, number: int):
    return replace(attempt.proposal, merges=number)


def test_what_a_merged_attempt_merges_may_be_too_old_to_be_learnt_from():
    again = undecided(13, 1.376, parent=1, merges=12)
    without = know(measured(NIGHT, again))
    assert np.array_equal(
        without.belief.weights[-1], know(measured(NIGHT, undecided(13, 1.376, parent=1))).belief.weights[-1]
    )


# ---- the order in which others ended ---------------------------------------------------------------------------------


def a_night(seed: int) -> list[Attempt]:
    """Edits of #0 and of two scripts that were kept one after the other, most of them bad."""
    rng = np.random.default_rng(seed)
    found = [BASELINE]
    means = {0: 1.5}
    for number in range(1, 25):
        parent = int(rng.choice(list(means)))
        mean = means[parent] + (-4 if number in (5, 11) else 3 * rng.exponential() - 1) * SIGMA
        if number % 9 == 4:
            found.append(stopped_attempt(number, parent))
            continue
        keeps = number in (5, 11)
        scores = [mean + SIGMA * rng.normal() for _ in range(3 if keeps else 1)]
        found.append(scored_attempt(number, *scores, parent=parent, status=Status.KEEP if keeps else Status.DISCARD))
        if keeps:
            means[number] = mean
    return found


def settled_in(order: np.ndarray, history: History) -> list[Attempt]:
    """The same decisions with other ids, as where attempts have ended in this order; keeps in the order of numbers."""
    ids = {int(number): 1 + place for place, number in enumerate(order)}
    ids |= dict(zip((0, 5, 11), sorted(ids[number] for number in (0, 5, 11)), strict=True))
    return [
        replace(one, decisions=(Entry(ids[one.number], None, one.decision),))
        for one in history
        if one.decision is not None
    ]


@pytest.mark.parametrize("judge", JUDGES)
def test_the_order_in_which_others_have_ended_decides_nothing_but_the_incumbent(judge: Judge):
    rng = np.random.default_rng(3)
    for seed in range(2):
        history = a_night(seed)
        tried = [undecided(25, value, parent=parent) for value in (1.42, 1.46, 1.49) for parent in (0, 5, 11)]
        expected = [judge.judge(one, history) for one in tried]
        for _ in range(2):
            other = settled_in(rng.permutation(len(history)), history)
            assert [judge.judge(one, other) for one in tried] == expected
            assert judge.review(other) == judge.review(history)


@pytest.mark.parametrize("judge", JUDGES)
def test_those_that_are_not_decided_yet_say_nothing_whatever_their_number(judge: Judge):
    history = a_night(0)
    tried = [undecided(12, value, parent=parent) for value in (1.40, 1.48) for parent in (0, 5, 11)]
    others = [one for one in history if one.number != 12]
    expected = [judge.judge(one, others) for one in tried]
    in_flight = [undecided(number, *(1.3,) * (number % 2), parent=11) for number in (25, 26, 27)]
    assert [judge.judge(one, [*others, *in_flight]) for one in tried] == expected
    assert judge.review([*history, *in_flight]) == judge.review(history)


def test_one_with_a_low_number_is_judged_by_what_later_ones_have_shown():
    """As in the order of numbers: the tree does not know when its attempts ended."""
    history = a_night(1)
    late = replace(history[3], decision=None, settled=False)
    others = [one for one in history if one.number != 3]
    assert [one.number for one in measured(others, late)] == [one.number for one in measured(history)]
    known, whole = know(measured(others, late)), know(measured(history))
    assert known is not None
    assert whole is not None
    assert known.effect(3).mean == whole.effect(3).mean
