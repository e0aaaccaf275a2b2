"""Tell whether the machine was slow during a run: throttled, short of power, or busy with another program. Pure.

An edit changes the speed of its script, so only runs of a same script compare directly: further seeds, attempt 0's, the
incumbent's, dawn's. How far they may stray is measured by the night's own repeats. A first run of an edit is suspect
where it slows down within itself, or where it is the third edit in a row that is slow, measured by its parent. Both may
be the edits' doing. So a reference script, whose speed is known, is trained for a moment before such a run is void.
"""

import json
import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from agent.amounts import is_finite
from agent.experiment import Attempt, Ending, Run

FLOOR = 0.05  # of the speed: less costs a score about as much as another seed does
SIGMAS = 5.0  # of the spread of repeats; benchmarks/drift.py has the false alarms of it and of others
LEAST_PAIRS, UNKNOWN = 3, 0.25  # of repeats, before their spread means anything; until then, so much has to be lost
MOST_REPEATS = 3  # of one script, the latest: it counts its own steps, and must not outvote the others
OF_PAIRS = 0.9539  # median distance of two draws from a normal distribution, in its standard deviations
LEAST_S = 2.0  # of training: shorter runs, and seconds that scripts round, tell nothing
LEAST_STEPS = 40  # of a run whose halves are compared
START = 0.1  # of a run, which is left out there: caches are cold
IN_A_ROW = 3  # runs of edits that are looked at together
MOST_VOIDS = 2  # of a seed: a run that is slow for the third time counts
LATEST = "~"  # after any time
MEASURED = frozenset({Ending.FINISHED, Ending.SLOWED})

Points = Sequence[tuple[float, float]]  # (fraction of the budget, steps until then)


@dataclass(frozen=True, slots=True)
class Usual:
    """Hold what is known of the speed of a run before it begins."""

    threshold: float  # share of the speed; a run that loses more was slowed
    same: tuple[float, ...] = ()  # steps a second of the script's other runs
    least_tokens_s: float | None = None  # with less, the last IN_A_ROW edits were slow, this one among them

    def lost(self, run: Run) -> float | None:
        """Return which share of its script's usual speed a run has lost, if it is more than repeats stray."""
        own = steps_s(run)
        share = None if own is None else slowness(own, self.same)
        return share if share is not None and share > self.threshold else None

    def is_suspect(self, run: Run, points: Points) -> bool:
        """Return whether the machine may be why the first run of an edit is slow."""
        if self.same or steps_s(run) is None:
            return False  # it was compared directly
        slow = self.least_tokens_s is not None and (run.tokens_s or math.inf) < self.least_tokens_s
        return slow or (slowed_within(points) or 0.0) > self.threshold


def steps_s(run: Run) -> float | None:
    """Return steps by second of training; None for a run that is too short to tell, or was not finished."""
    trained_s = run.summary.training_seconds if run.summary is not None else None
    return None if trained_s is None or trained_s < LEAST_S else speed(run)


def speed(run: Run) -> float | None:
    """Return steps by second of training, without the start, which takes longer while caches are cold.

    Runs of one script compare by it. They are exact, while a short run has few thousands of tokens.
    """
    said = run.summary
    if run.ending not in MEASURED or said is None or not said.num_steps or not said.training_seconds:
        return None
    return said.num_steps / said.training_seconds


def speeds(attempt: Attempt, since: str = "", until: str = LATEST) -> tuple[float, ...]:
    """Return the speeds of an attempt's runs that count and began within these times.

    Without the first run of attempt 0, which compiles and was alone where the night has several workers.
    """
    runs = attempt.counted_runs if attempt.number else attempt.counted_runs[1:]
    known = (steps_s(run) for run in runs if since <= (run.began or "") < until and run.ending is Ending.FINISHED)
    return tuple(speed for speed in known if speed is not None)


def slowness(own: float, others: Sequence[float]) -> float | None:
    """Return by which share a run is slower than others; None without others."""
    return 1 - own / statistics.median(others) if others else None


def are_slow(own: Sequence[float], others: Sequence[float], most: float) -> bool:
    """Return whether all of these runs lost more of the others' speed than that."""
    return bool(own and others) and max(own) < (1 - most) * statistics.median(others)


def threshold(repeats: Iterable[Sequence[float]]) -> float:
    """Return the share of the speed that a run has to lose, from the speeds of the runs of each script.

    The spread is the median distance of two runs of a same script, which a few slow runs do not move.
    """
    pairs = [abs(math.log(one / other)) for runs in repeats for one, other in combinations(runs[-MOST_REPEATS:], 2)]
    if len(pairs) < LEAST_PAIRS:
        return UNKNOWN
    return max(FLOOR, 1 - math.exp(-SIGMAS * statistics.median(pairs) / OF_PAIRS))


# ---- within one run --------------------------------------------------------------------------------------------------


def points_of(curve: bytes) -> Points:
    """Read fraction of the budget and steps from the lines of a metrics.jsonl, without those that are cut off."""
    return [point for line in curve.splitlines() if (point := _point(line)) is not None]


def step_at(points: Points, fraction: float) -> float | None:
    """Return how many steps were made by a fraction of the budget; None where the curve does not reach from 0 to it."""
    at = bisect_right(points, (fraction, math.inf))
    if at == 0 or (at == len(points) and points[-1][0] < fraction):
        return None
    before, step = points[at - 1]
    if at == len(points) or before == fraction:
        return step
    after, next_step = points[at]
    return step + (next_step - step) * (fraction - before) / (after - before)


def slowed_within(points: Points) -> float | None:
    """Return which share of its speed a run has lost from its first to its second half; None for a run of few steps."""
    marks = [step_at(points, fraction) for fraction in (START, 0.5)]
    start, middle = marks
    if start is None or middle is None or middle <= start or points[-1][0] < 1 - START or points[-1][1] < LEAST_STEPS:
        return None
    end_fraction, end = points[-1]
    return 1 - (end - middle) / (end_fraction - 0.5) / ((middle - start) / (0.5 - START))


def _point(line: bytes) -> tuple[float, float] | None:
    try:
        said = json.loads(line)
        fraction, step = said["progress"], said["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (fraction, step) if is_finite(fraction) and is_finite(step) and 0 <= fraction <= 1 else None


# ---- edits -----------------------------------------------------------------------------------------------------------


def least_tokens_s(edits: Sequence[float], parent_tokens_s: float, most: float) -> float | None:
    """Return below which speed the next edit is the last of IN_A_ROW slow ones; None where those before it were not.

    edits: the speeds of the edits so far, each as a share of its parent's.
    """
    latest, earlier = edits[1 - IN_A_ROW :], edits[: 1 - IN_A_ROW]
    usual = earlier if len(earlier) >= IN_A_ROW else (1.0,)
    if len(latest) < IN_A_ROW - 1 or not are_slow(latest, usual, most):
        return None
    return (1 - most) * statistics.median(usual) * parent_tokens_s
