"""Attempts end in any order: each is compared with its own parent, and one that was overtaken has to win again."""

import re
from dataclasses import replace

import numpy as np
import pytest
from judged import scored_attempt, stopped_attempt

from agent.experiment import Attempt, Decision, Kind, Status
from agent.judging.judges import JUDGES, Balanced, Greedy, Judge, Strict

SIGMA = 0.006
BASELINE = scored_attempt(0, 1.500, 1.506, 1.494, 1.501, status=Status.KEEP, kind=Kind.BASELINE)
BEST = scored_attempt(1, 1.400, 1.401, 1.399, parent=0, status=Status.KEEP)


def losers(first: int, count: int, parent: int, val_bpb: float) -> list[Attempt]:
    more = (0.02, 0.05, 0.012, 0.1, 0.03)
    return [scored_attempt(first + k, val_bpb + more[k % 5] + 0.001 * k, parent=parent) for k in range(count)]


NIGHT = [BASELINE, BEST, *losers(2, 10, 0, 1.5)]


def undecided(number: int, *scores: float, parent: int = 0, **more: object) -> Attempt:
    return scored_attempt(number, *scores, parent=parent, status=None, **more)  # type: ignore[arg-type]


# ---- the parent is no longer the incumbent ---------------------------------------------------------------------------


@pytest.mark.parametrize("judge", [judge() for judge in JUDGES.values()])
def test_what_is_better_than_its_overtaken_parent_is_to_be_merged_though_it_is_worse_than_the_best(judge):
    decision = judge.judge(undecided(12, 1.45), NIGHT)
    assert (decision.kind, decision.status) == (Kind.OVERTAKEN, Status.DISCARD)
    assert decision.reason.endswith("; to be merged onto #1")
    assert " better than its parent" in decision.reason


def test_of_two_edits_of_one_script_the_one_that_brings_less_is_measured_again():
    history = [*NIGHT, undecided(13, 1.5)]
    for judge in (Greedy(), Strict()):
        assert judge.judge(undecided(12, 1.30), history).kind is Kind.OVERTAKEN
    better = Balanced().judge(undecided(12, 1.30), history)
    assert better.kind is Kind.KEPT
    words = r"[\d.]+ better than its parent, >99% sure of a gain, and better than #1"
    assert re.fullmatch(words, better.reason)
    assert Balanced().judge(undecided(12, 1.3995), history).kind is Kind.OVERTAKEN
    late = scored_attempt(12, 1.30, parent=0, status=Status.KEEP)
    late = replace(late, decisions=(replace(late.decision, id=99),))  # decided after those that have no id
    review = Balanced().review([*NIGHT, late])
    assert set(review.decisions) == {1}
    assert (review.decisions[1].kind, review.again) == (Kind.OVERTAKEN, ())
    assert review.decisions[1].reason.endswith("; to be merged onto #12")


# ---- the parent is not kept any more ---------------------------------------------------------------------------------


def fallen(kind: Kind, val_bpb: float = 1.4) -> list[Attempt]:
    scores = (val_bpb, val_bpb + 0.001, val_bpb - 0.001)
    return [BASELINE, scored_attempt(1, *scores, parent=0, kind=kind), *losers(2, 10, 0, 1.5)]


@pytest.mark.parametrize("judge", [judge() for judge in JUDGES.values()])
def test_an_edit_of_a_revoked_script_is_worth_as_much_in_another(judge):
    decision = judge.judge(undecided(12, 1.53, parent=1), fallen(Kind.REVOKED, 1.58))
    assert decision.kind is Kind.OVERTAKEN
    assert decision.reason.endswith("to be merged onto #0")
    assert judge.judge(undecided(12, 1.61, parent=1), fallen(Kind.REVOKED, 1.58)).kind is Kind.WORSE


@pytest.mark.parametrize("judge", [judge() for judge in JUDGES.values()])
def test_an_edit_of_a_script_whose_score_is_not_believed_cannot_be_compared(judge):
    for kind in (Kind.FAILED_AUDIT, Kind.QUARANTINED, Kind.CRASHED):
        decision = judge.judge(undecided(12, 1.35, parent=1), fallen(kind))
        assert decision == Decision(Kind.ORPHANED, "made from #1, whose scores do not count any more")


# ---- the order in which others ended ---------------------------------------------------------------------------------


@pytest.mark.parametrize("judge", [judge() for judge in JUDGES.values()])
def test_the_order_in_which_others_have_ended_decides_nothing_but_the_incumbent(judge: Judge):
    history = [*NIGHT, stopped_attempt(12, 1), *losers(13, 8, 1, 1.39)]
    tried = [undecided(21, val_bpb, parent=parent) for val_bpb in (1.38, 1.42, 1.49) for parent in (0, 1)]
    order = [0, 1, *np.random.default_rng(3).permutation(range(2, len(history)))]  # keeps in that of their numbers
    other = [
        replace(attempt, decisions=(replace(attempt.decision, id=int(place)),))
        for attempt, place in zip(history, order, strict=True)
    ]
    assert [judge.judge(attempt, other) for attempt in tried] == [judge.judge(attempt, history) for attempt in tried]
    assert judge.review(other) == judge.review(history)
