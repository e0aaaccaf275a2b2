"""Keep an edit by one lower score, as most systems do."""

import math
from dataclasses import dataclass

from agent.experiment import Attempt, Decision, History, Kind, Review, Status, incumbent
from agent.judging.failures import failure
from agent.judging.judges.comparison import compare, orphaned, overtaken, pairs, rival_of
from agent.judging.noise import SAME


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keep what is strictly lower than the incumbent's mean; a tie is a discard.

    With confirm, what would be kept is measured with that many more seeds first, and judged by the mean.
    """

    confirm: int = 0
    calibration: int = 1

    def judge(self, attempt: Attempt, history: History) -> Decision:
        why = failure(attempt)
        if why is not None or attempt.val_bpb is None:
            return Decision(Kind.CRASHED, why or "no score")
        best = incumbent(history)
        if best is None or best.val_bpb is None:
            return Decision(Kind.BASELINE, "baseline")
        rival = rival_of(attempt, best, history)
        if rival is None:
            return orphaned(attempt)
        verdict = compare(attempt, rival, best)
        if rival is not best:
            return overtaken(verdict, best) if verdict.status is Status.KEEP else verdict
        if verdict.status is Status.KEEP and len(attempt.done_runs) <= self.confirm:
            return Decision(Kind.UNDECIDED, "another seed has to confirm it")
        if verdict.status is Status.KEEP and any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
            return Decision(Kind.IGNORES_SEED, "it ignores its seed: two seeds gave the very same score")
        return verdict

    def review(self, history: History) -> Review:
        """Return no second thoughts: decisions are final."""
        return Review()
