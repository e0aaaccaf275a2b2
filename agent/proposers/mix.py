"""Choose whom to ask for the next idea: a bandit that gives each proposer its share of the night. Pure.

What a proposer is worth is its gain per hour, training and asking together. Gains are counted in typical keeps (the
mean gain of what the night has kept), so that a proposer's keeps are events of a Poisson process in its hours, whose
rate has a Gamma posterior. Thompson sampling (Thompson, 1933; Chapelle & Li, 2011) draws a rate for each proposer and
asks the one with the highest. The prior is one typical keep in the hours of a few attempts; each proposer says of how
many. No proposer stays that good for long, so one that has not been tried yet soon gets its turn.
"""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from agent.experiment import Attempt, Kind, Status, proposer_name
from agent.proposers.proposer import Briefing, Proposer
from agent.records.summary import earned, kept_gains_bpb

PRIOR_KEEPS = 1.0  # keeps that a proposer is expected to have in its attempts_a_keep, before it is asked
FIRST_TURN = 4  # attempts of others, after which a proposer has its first turn whatever is drawn
RESTS_AFTER, MOST_RESTED = 2, 32  # failures in a row, and attempts rested at most


def in_turn(
    proposers: Sequence[Proposer], briefing: Briefing, seed: int | str, asking: Mapping[str, int]
) -> list[Proposer]:
    """Return the proposers in the order in which they are to be asked; those that rest, and the stand-in, come last.

    asking: how many questions each proposer, by its name, is being asked now. Equal arguments give equal draws, so a
    resumed night goes on like an undisturbed one.
    """
    rates = drawn_rates(proposers, briefing, seed, asking)
    return sorted(
        proposers,
        key=lambda proposer: (rests_until(proposer, briefing) is not None, proposer.stands_in, -rates[proposer.name]),
    )


def drawn_rates(
    proposers: Iterable[Proposer], briefing: Briefing, seed: int | str, asking: Mapping[str, int]
) -> dict[str, float]:
    """Draw the typical keeps per hour of each proposer; infinite where its first turn is due.

    Questions and attempts in flight count as tried with the outcome that is expected of their proposer: its rate stays,
    and its posterior narrows, so that workers that want an idea at the same time do not all draw the proposer that has
    the widest. An attempt that was overtaken counts where it is merged and wins again.
    """
    history, asks = briefing.history, briefing.asks
    rng = random.Random(f"{seed} {briefing.number} {len(asks)}")
    shares = {share.proposer: share for share in earned(history, asks)}
    typical_bpb = statistics.fmean([gain for gain in kept_gains_bpb(history).values() if gain > 0] or [1.0])
    done_s = [attempt.spent_s for attempt in history if attempt.decision is not None and attempt.is_idea]
    attempt_h = ((statistics.fmean(done_s) if done_s else 0.0) or briefing.night.budget_s) / 3600
    open_h = defaultdict[str, float](float, {name: number * attempt_h for name, number in asking.items()})
    overtaken_h = defaultdict[str, float](float)
    for attempt in history:
        name = proposer_name(attempt.proposer)
        if attempt.is_idea and attempt.decision is None:
            open_h[name] += max(0.0, attempt_h - attempt.spent_s / 3600)
        elif attempt.kind is Kind.OVERTAKEN:
            overtaken_h[name] += attempt.spent_s / 3600
    tried = sum(share.attempts for share in shares.values()) + sum(asking.values())
    rates = {}
    for proposer in proposers:
        share = shares.get(proposer.name)
        keeps, hours = PRIOR_KEEPS, proposer.attempts_a_keep * attempt_h - overtaken_h[proposer.name]
        if share is not None:
            keeps, hours = keeps + share.gain_bpb / typical_bpb, hours + share.hours
        narrower = 1 + open_h[proposer.name] / hours
        rate = rng.gammavariate(keeps * narrower, 1 / (hours * narrower))
        is_new = share is None and not asking.get(proposer.name)
        rates[proposer.name] = math.inf if is_new and tried >= FIRST_TURN else rate
    return rates


def rests_until(proposer: Proposer, briefing: Briefing) -> int | None:
    """Return the attempt until which a proposer rests, since its last turns all failed: each failure doubles its rest.

    A turn fails where a call brings no idea, where the attempt loses by more than the noise of a run or, of a proposer
    that only computes, where it crashes. The bandit counts gains alone: it cannot tell an idea that brought nothing
    from one that ruined the score, and a crash takes seconds, so that hours would not tell either. What made one known
    idea crash on this machine may do the same to the next; a proposer that costs can repair what crashed.
    """
    own = [
        attempt for attempt in briefing.history if proposer_name(attempt.proposer) == proposer.name and attempt.decision
    ]
    turns = {attempt.number: _failed(attempt, proposer, briefing.sigma_bpb) for attempt in own}
    latest = max(turns, default=-1)
    for ask in briefing.asks:
        # an answer is a turn until its attempt is decided
        if proposer_name(ask.proposer) == proposer.name and (ask.failure is not None or ask.attempt > latest):
            turns[ask.attempt] = ask.failure is not None
    failed = [number for number, _ in takewhile(lambda turn: turn[1], sorted(turns.items(), reverse=True))]
    if len(failed) < RESTS_AFTER:
        return None
    until = failed[0] + 1 + min(MOST_RESTED, 2 ** (len(failed) - RESTS_AFTER))
    return until if until > briefing.number else None


def _failed(attempt: Attempt, proposer: Proposer, sigma_bpb: float | None) -> bool:
    if attempt.status is Status.CRASH:
        return not proposer.costs
    if attempt.gain_bpb is None or sigma_bpb is None:
        return False
    return attempt.gain_bpb < -sigma_bpb
