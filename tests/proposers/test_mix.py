"""Several proposers in one night: each is asked the more often, the more it gains for the time that it takes."""

import dataclasses
from collections import Counter

import pytest
from judged import decided
from proposing import Proposer, attempt, brief

from agent.experiment import Ask, Attempt, Noise, Status
from agent.proposers.mix import in_turn, rests_until
from agent.records.summary import earned

FIRST = attempt(0, "you")
NOISE = Noise(0.01, 5, 0.028)
LLM, SEARCH = Proposer("llm"), Proposer("search", attempts_a_keep=4.0)


def asked(number: int, proposer: str, failure: str | None = None, wall_s: float = 10.0, **costs: float) -> Ask:
    return Ask(number, proposer, "2026-11-21T00:00:00Z", wall_s, failure=failure, **costs)


def first_of(*proposers: Proposer, history: list[Attempt], asks: tuple[Ask, ...] = (), seeds: int = 40) -> Counter:
    """How often each proposer is the first to be asked."""
    briefing = brief(history, asks)
    return Counter(in_turn(proposers, briefing, seed, {})[0].name for seed in range(seeds))


def run_bandit(rates: dict[str, float], attempts: int = 80) -> Counter:
    """A night in which the k-th attempt of a proposer is kept where its rate has summed up to a whole number."""
    proposers, history, count = [Proposer(name) for name in rates], [FIRST], Counter()
    for number in range(1, attempts + 1):
        name = in_turn(proposers, brief(history), 0, {})[0].name
        count[name] += 1
        kept = int(count[name] * rates[name]) > int((count[name] - 1) * rates[name])
        history.append(attempt(number, name, 0.01 if kept else 0.0))
    return count


def test_a_proposer_that_gains_gets_the_larger_share_and_the_other_is_not_forgotten():
    assert set(run_bandit({"search": 0.1, "llm": 0.1, "command": 0.1}, 12)) == {"search", "llm", "command"}
    count = run_bandit({"search": 0.02, "llm": 0.4})
    assert count["llm"] > 3 * count["search"] >= 6


# ---- rests -----------------------------------------------------------------------------------------------------------


def test_a_proposer_that_fails_again_and_again_rests_longer_each_time_until_it_answers():
    down, until = [], []
    for number in (3, 4, 6, 9, 14):
        down.append(asked(number, "llm:some-model", "no answer"))
        history = [attempt(k, "search") for k in range(number + 1)]
        until.append(rests_until(LLM, brief(history, tuple(down))))
    assert until == [None, 6, 9, 14, 23]
    assert rests_until(LLM, brief([attempt(k, "search") for k in range(23)], tuple(down))) is None
    assert rests_until(LLM, brief([FIRST], (*down, asked(15, "llm")))) is None


@pytest.mark.parametrize(("proposer", "until"), [(LLM, None), (SEARCH, 4 + 1 + 4)])  # a model can repair its crashes
def test_what_computes_rests_after_crashes(proposer, until):
    history = [FIRST, *(attempt(number, proposer.name, status=Status.CRASH) for number in range(1, 5))]
    assert rests_until(proposer, brief(history)) == until


def lost(number: int, proposer: str, gain_bpb: float = -0.02) -> Attempt:
    attempted = attempt(number, proposer)
    return dataclasses.replace(attempted, decisions=(decided(Status.DISCARD, "", gain_bpb),))


@pytest.mark.parametrize("proposer", [LLM, SEARCH])
def test_a_proposer_rests_whose_edits_lose_by_more_than_the_noise(proposer):
    losing = [FIRST, *(lost(number, proposer.name) for number in range(1, 5))]
    asks = tuple(asked(number, proposer.name) for number in range(1, 5) if proposer.costs)
    assert rests_until(proposer, brief(losing, asks, noise=NOISE)) == 4 + 1 + 4
    assert rests_until(proposer, brief([*losing, lost(5, proposer.name, -0.005)], asks, noise=NOISE)) is None
    assert rests_until(proposer, brief(losing, asks)) is None, "without a noise nothing is known to be worse"


def test_a_proposer_that_keeps_losing_gets_a_seventh_of_the_attempts_until_it_wins():
    proposers = [Proposer("search", attempts_a_keep=4.0), Proposer("catalogue")]
    for seed in range(4):
        history = [FIRST]
        for number in range(1, 121):
            name = in_turn(proposers, brief(history, noise=NOISE), seed, {})[0].name
            history.append(lost(number, name) if name == "search" else attempt(number, name))
        assert 4 <= sum(attempt.proposer == "search" for attempt in history[10:]) <= 0.15 * 111
        assert rests_until(proposers[0], brief([*history, attempt(121, "search", 0.03)], noise=NOISE)) is None


def test_a_proposer_that_rests_and_one_that_stands_in_come_last():
    down = tuple(asked(number, "llm", "no answer") for number in (1, 2, 3))
    history = [attempt(k, "search") for k in range(4)]
    assert first_of(LLM, SEARCH, history=history, asks=down) == {"search": 40}
    stand_in = Proposer("search", stands_in=True)
    assert first_of(LLM, stand_in, history=history) == {"llm": 40}
    assert first_of(LLM, stand_in, history=history, asks=down) == {"search": 40}


# ---- what was earned -------------------------------------------------------------------------------------------------


def test_shares_tell_what_each_proposer_brought_and_cost():
    history = [FIRST, attempt(1, "search", 0.002), attempt(2, "llm:some-model", 0.01), attempt(3, "llm:other-model")]
    paid = asked(2, "llm:some-model", wall_s=600.0, tokens_in=1000, usd=0.02)
    llm, search = earned(history, (paid, asked(3, "llm:other-model", "garbage", wall_s=600.0, tokens_in=500)))
    assert (llm.proposer, llm.attempts, llm.kept, llm.gain_bpb, llm.calls, llm.failures) == ("llm", 2, 1, 0.01, 2, 1)
    assert (llm.hours, llm.tokens_in, llm.usd) == (pytest.approx((2 * 300 + 1200) / 3600), 1500, 0.02)
    assert (search.proposer, search.attempts, search.calls, search.usd) == ("search", 1, 0, None)
