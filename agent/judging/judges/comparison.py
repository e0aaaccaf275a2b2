"""Compare an attempt with the script that it was made from: the parts that all judges share."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from agent.experiment import Attempt, Decision, History, Kind, incumbent
from agent.judging.failures import failure
from agent.judging.noise import SAME, is_believed
from agent.text import shown_difference


def settled_at_once(attempt: Attempt, history: History, calibration: int) -> Decision | None:
    """Decide what needs no estimate: a crash, the baseline, a script that ignores its seed; None for others."""
    why = failure(attempt)
    if why is not None or attempt.val_bpb is None:
        return Decision(Kind.CRASHED, why or "no score")
    best = incumbent(history)
    if best is None or best.val_bpb is None:
        if len(attempt.done_runs) < calibration:
            return Decision(
                Kind.UNDECIDED, f"calibration: run {len(attempt.done_runs) + 1} of {calibration} tells the noise"
            )
        return Decision(Kind.BASELINE, "baseline")
    if any(math.isclose(*pair, rel_tol=SAME) for pair in pairs(attempt)):
        return Decision(Kind.IGNORES_SEED, "it ignores its seed: two seeds gave the very same score")
    return None


def rival_of(attempt: Attempt, best: Attempt, history: History) -> Attempt | None:
    """Return the attempt that this one is compared with: its parent; None if the parent's scores do not count.

    Attempts may end in any order, so the parent may no longer be the incumbent. It may even be revoked: the gain over
    it is measured all the same, and is the gain of this edit alone, whatever the parent's own edit was worth.
    """
    if attempt.parent is None or attempt.parent == best.number:
        return best
    parent = history[attempt.parent]
    counts = parent.decision is not None and is_believed(parent.decision) and parent.val_bpb is not None
    return parent if counts else None


def incumbent_of(history: History) -> Attempt:
    """Return the incumbent of a history that has one."""
    best = incumbent(history)
    assert best is not None
    return best


def compare(attempt: Attempt, rival: Attempt, best: Attempt) -> Decision:
    whom = "the incumbent" if rival is best else "its parent"
    val_bpb, rival_bpb = mean(attempt), mean(rival)
    if math.isclose(val_bpb, rival_bpb, rel_tol=SAME):
        return Decision(Kind.TIE, f"a tie with {whom}")
    if val_bpb < rival_bpb:
        return Decision(Kind.KEPT, f"{shown_difference(rival_bpb, val_bpb):.6f} below {whom}")
    return Decision(Kind.WORSE, f"{shown_difference(val_bpb, rival_bpb):.6f} above {whom}")


def orphaned(attempt: Attempt) -> Decision:
    return Decision(Kind.ORPHANED, f"made from #{attempt.parent}, whose scores do not count any more")


def overtaken(found: Decision, best: Attempt) -> Decision:
    """Decide about an edit that looks better than its parent, while another one has become the incumbent.

    The sum of their gains was not measured, so it has to win again. It gets no other seed: the merged attempt's first
    run tells as much about the edit, and that attempt can be kept.
    """
    return replace(found, kind=Kind.OVERTAKEN, reason=f"{found.reason}; to be merged onto #{best.number}")


def mean(attempt: Attempt) -> float:
    """Return the mean of an attempt's scores; the incumbent is valued by it, never by its minimum."""
    return statistics.fmean(attempt.scores_bpb)


def pairs(attempt: Attempt) -> Iterator[tuple[float, float]]:
    """Yield the scores of every two runs of an attempt."""
    return combinations(attempt.scores_bpb, 2)
