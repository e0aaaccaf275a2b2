"""Where a night stands, as its live panel shows it: computed when something was recorded, and not with each drawing."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.experiment import Ask, History, Noise, Status, incumbent
from agent.judging.intervals import Interval
from agent.proposers.briefing import Left
from agent.view.facts.load import Load
from agent.view.facts.overview import Scored, gain_of, scored_attempt


@dataclass(frozen=True, slots=True)
class CostSoFar:
    """Hold the cost of all calls to sources of ideas; None where no call told it."""

    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    tokens_cached: int | None  # of tokens_in

    @classmethod
    def of(cls, asks: Iterable[Ask]) -> "CostSoFar":
        known = list(asks)
        dollars = [ask.usd for ask in known if ask.usd is not None]
        counts = (
            [count for count in told if count is not None]
            for told in zip(*((ask.tokens_in, ask.tokens_out, ask.tokens_cached) for ask in known), strict=True)
        )
        tokens = [sum(told) if told else None for told in counts] or [None] * 3
        return cls(sum(dollars) if dollars else None, *tokens)


@dataclass(frozen=True, slots=True)
class SoFar:
    """Hold what the panel says of a night beside the attempt at work."""

    counts: Mapping[Status, int]  # of ideas
    baseline: Scored | None
    best: Scored | None
    gain: Interval | None  # of the best over the baseline; None while that is the best
    noise: Noise | None
    cost: CostSoFar
    experiments_left: int | None  # None: no limit
    ends_s: float | None  # of the clock time.time(); None: no limit
    load: Load | None = None  # of several workers; None: the night has one

    @classmethod
    def of(
        cls, history: History, noise: Noise | None, asks: Iterable[Ask], left: Left, load: Load | None = None
    ) -> "SoFar":
        """Compute it from the attempts of a night."""
        counts = Counter(attempt.status for attempt in history if attempt.is_edit and attempt.status is not None)
        sigma_bpb = noise.sigma_bpb if noise is not None else None
        best, first = incumbent(history), history[0] if history else None
        scored, baseline = scored_attempt(best, sigma_bpb), scored_attempt(first, sigma_bpb)
        gain = gain_of(baseline, scored, sigma_bpb)
        ends_s = None if left.seconds is None else time.time() + left.seconds
        return cls(counts, baseline, scored, gain, noise, CostSoFar.of(asks), left.experiments, ends_s, load)
