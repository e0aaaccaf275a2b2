"""Simpler is what the harness counts to be smaller, and it may cost little, however often."""

from dataclasses import replace

import pytest
from judged import scored_attempt

from agent.experiment import Attempt, Decision, Kind, Status
from agent.judging.judges import Balanced, simpler

CODE = '''\
"""What it is."""

RATE = 0.1  # a word


def step(x):
    """What it does."""
    y = x * RATE
    return y + 1
'''
LARGE = 1000  # parameters
SIGMA = 0.006


def edit(script: str = CODE, params: int | None = LARGE) -> Attempt:
    return scored_attempt(1, 1.5, parent=0, script=script, params=params)


SHORTER = CODE.replace("y = x * RATE\n    return y + 1", "return x * RATE + 1")


@pytest.mark.parametrize(
    ("script", "params", "what"),
    [
        (SHORTER, LARGE, "3 fewer statements, names and constants"),
        (CODE, 900, "100 fewer parameters"),
        (CODE, 995, None),  # rounding
        (CODE + "X = 1\n", 900, None),  # paid for with code
        ("", 1001, None),  # code, paid for with parameters
        (SHORTER, None, None),
    ],
)
def test_simpler_is_less_of_one_and_not_more_of_the_other(script, params, what):
    assert simpler(edit(script, params), edit()) == what


# ---- what the judge makes of it --------------------------------------------------------------------------------------


def baseline(**details: object) -> Attempt:
    scores = 1.5, 1.5 + SIGMA, 1.5 - SIGMA, 1.5, 1.5
    return scored_attempt(0, *scores, status=Status.KEEP, reason="baseline", params=LARGE, **details)  # type: ignore[arg-type]


def discards(first: int, parent: int, val_bpb: float) -> list[Attempt]:
    return [scored_attempt(first + k, val_bpb + 0.01 * (k + 1), parent=parent, params=LARGE) for k in range(6)]


def test_a_tie_is_kept_after_two_runs_and_says_why():
    history = [baseline(script=CODE), *discards(1, 0, 1.5)]
    smaller = {"parent": 0, "status": None, "script": "RATE = 1\n", "params": LARGE}
    once = Balanced().judge(scored_attempt(7, 1.5, **smaller), history)  # type: ignore[arg-type]
    assert once.status is None
    twice = Balanced().judge(scored_attempt(7, 1.501, 1.5, **smaller), history)  # type: ignore[arg-type]
    assert (twice.kind, twice.status) == (Kind.SIMPLER, Status.KEEP)
    words = "simpler: 9 fewer statements, names and constants, and 0.000500 higher than its parent"
    assert twice.reason.startswith(words)


def shrinking(cost_bpb: float, count: int) -> list[Decision]:
    """A night of ever smaller models, each of which costs a little more; the branch follows what the judge keeps."""
    history, decisions, best = [baseline(), *discards(1, 0, 1.5)], [], 0
    for k in range(1, count + 1):
        val_bpb = 1.5 + k * cost_bpb
        scores = [val_bpb + sign * SIGMA for sign in (-1, 1, -0.9, 0.9, -0.5, 0.5)]
        attempt = scored_attempt(len(history), *scores, parent=best, status=None, params=1000 - 50 * k)
        decisions.append(Balanced().judge(attempt, history))
        history.append(replace(attempt, decisions=(decisions[-1],), settled=True))
        best = len(history) - 1 if decisions[-1].status is Status.KEEP else best
    return decisions


def test_what_simpler_scripts_may_cost_is_bounded_over_all_of_them():
    decisions = shrinking(cost_bpb=0.001, count=8)
    assert decisions[0].reason.startswith("simpler: 50 fewer parameters, and 0.001000 higher than its parent")
    kept = [decision.status is Status.KEEP for decision in decisions]
    assert kept == [True] * 2 + [False] * 6  # each costs as much over the one before it
