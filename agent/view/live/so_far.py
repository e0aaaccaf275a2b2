"""Where a night stands, as its live panel shows it: computed when something was recorded, and not with each drawing."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.experiment import Ask, Attempt, History, Left, Noise, Status, incumbent
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.standing import Standing
from agent.text import shown_difference

DEVIATIONS = 1.96  # to either side: 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Best:
    """The incumbent, compared with attempt 0."""

    number: int
    title: str
    val_bpb: float
    baseline_bpb: float
    margin_bpb: float | None  # half of the 95 % interval of the difference; None where the noise is not known

    @property
    def below_bpb(self) -> float:
        return shown_difference(self.baseline_bpb, self.val_bpb)

    @classmethod
    def of(cls, best: Attempt | None, first: Attempt | None, found: Noise | None) -> "Best | None":
        if best is None or first is None or best.val_bpb is None or first.val_bpb is None:
            return None
        margin_bpb = None
        if found is not None:
            runs = (len(best.scores_bpb), len(first.scores_bpb))
            margin_bpb = DEVIATIONS * found.sigma_bpb * math.sqrt(sum(1 / count for count in runs))
        return cls(best.number, best.proposal.title, best.val_bpb, first.val_bpb, margin_bpb)


@dataclass(frozen=True, slots=True)
class CostSoFar:
    """The cost of all calls to sources of ideas; None where no call told it."""

    usd: float | None
    tokens_in: int | None
    tokens_out: int | None

    @classmethod
    def of(cls, asks: Iterable[Ask]) -> "CostSoFar":
        known = list(asks)
        dollars = [ask.usd for ask in known if ask.usd is not None]
        read = [ask.tokens_in for ask in known if ask.tokens_in is not None]
        written = [ask.tokens_out for ask in known if ask.tokens_out is not None]
        return cls(sum(dollars) if dollars else None, sum(read) if read else None, sum(written) if written else None)


@dataclass(frozen=True, slots=True)
class SoFar:
    """Hold what the panel says of a night beside the attempt at work."""

    counts: Mapping[Status, int]
    best: Best | None
    noise: Noise | None
    cost: CostSoFar
    experiments_left: int | None  # None: no limit
    ends_s: float | None  # of the clock time.time(); None: no limit

    @classmethod
    def of(cls, history: History, asks: Iterable[Ask], left: Left) -> "SoFar":
        """Compute it from the attempts that a night holds in memory."""
        found = noise(history)
        best = Best.of(incumbent(history), history[0] if history else None, found)
        counts = Counter(one.status for one in history if one.status is not None)
        return cls(counts, best, found, CostSoFar.of(asks), left.experiments, _end_of(left))

    @classmethod
    def read(cls, journal: Journal, left: Left) -> "SoFar":
        """Compute it from a journal, without reading every attempt."""
        now = Standing.read(journal)
        best = Best.of(now.best, now.first, now.noise)
        return cls(now.counts, best, now.noise, CostSoFar.of(journal.asks()), left.experiments, _end_of(left))


def _end_of(left: Left) -> float | None:
    return None if left.seconds is None else time.time() + left.seconds
