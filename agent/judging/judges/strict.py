"""Keep an edit by a sequential t-test, which is hardly ever wrong, and slow."""

import math
import statistics
from dataclasses import dataclass

from agent.experiment import Attempt, Decision, History, Kind, Review, Status
from agent.judging.judges.comparison import compare, incumbent_of, mean, orphaned, overtaken, rival_of, settled_at_once
from agent.judging.noise import doubt_of, measured


@dataclass(frozen=True, slots=True)
class Strict:
    """Keep what a sequential t-test calls better: at most 0.5 false keeps among 100 edits without effect.

    Every look after the third run may err with the same small probability; sigma is pooled over the night's repeats.
    """

    calibration: int = 4
    most: int = 6  # runs of one attempt
    hopeful: float = 0.8  # standard errors below the incumbent that a further run is worth
    error: float = 0.008  # of each look; most edits are given up long before the last

    def judge(self, attempt: Attempt, history: History) -> Decision:
        settled = settled_at_once(attempt, history, self.calibration)
        if settled is not None:
            return settled
        best = incumbent_of(history)
        rival = rival_of(attempt, best, history)
        if rival is None:
            return orphaned(attempt)
        found = self._test(attempt, rival, best, history)
        is_hopeful = found.status is Status.KEEP or found.kind is Kind.UNDECIDED
        return overtaken(found, best) if rival is not best and is_hopeful else found

    def _test(self, attempt: Attempt, rival: Attempt, best: Attempt, history: History) -> Decision:
        gain_bpb, t, luck = _t_test(attempt, rival, history)
        runs, verdict = len(attempt.scores_bpb), compare(attempt, rival, best)
        if math.isinf(t) or (runs >= 3 and luck <= self.error):
            return Decision(verdict.kind, verdict.reason, gain_bpb, 1 - luck)
        maybe = verdict.reason if gain_bpb <= 0 else f"{verdict.reason}, which may be luck"
        if math.isnan(t) or (t >= self.hopeful and runs < self.most):
            return Decision(Kind.UNDECIDED, maybe, gain_bpb, 1 - luck)
        kind = Kind.LUCK if verdict.kind is Kind.KEPT else verdict.kind
        return Decision(kind, maybe, gain_bpb, 1 - luck)

    def review(self, history: History) -> Review:
        """Return no second thoughts: decisions are final."""
        return Review()


def _t_test(attempt: Attempt, rival: Attempt, history: History) -> tuple[float, float, float]:
    """Return the gain, its Student's t, and the probability of as much by luck; t is nan if no run was repeated."""
    from scipy.special import stdtr  # takes a third of a second to import, and most commands do without

    repeats = [one.scores_bpb for one in (*measured(history), attempt) if len(one.scores_bpb) > 1]
    freedom = sum(len(values) - 1 for values in repeats)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in repeats)
    gain_bpb = mean(rival) - mean(attempt)
    if freedom == 0:
        return gain_bpb, math.nan, 0.5
    wider = 1 if doubt_of(history[0], math.sqrt(squares / freedom)) is None else 2
    error_bpb = wider * math.sqrt(squares / freedom * (1 / len(attempt.scores_bpb) + 1 / len(rival.scores_bpb)))
    t = gain_bpb / error_bpb if error_bpb > 0 else math.copysign(math.inf, gain_bpb)
    return gain_bpb, t, float(stdtr(freedom, -t))
