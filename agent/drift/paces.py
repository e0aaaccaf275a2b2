"""Know when a machine has become slower for good, and make scores from before and after comparable. Pure.

A run that was void for its speed twice, and is as slow the third time, counts: the machine trains at another pace from
its beginning on. Speeds are then compared with those since. The incumbent is measured again, and its difference says
how much a score of the earlier pace would be worth now.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from agent.drift.speeds import FLOOR, LATEST, MOST_VOIDS, UNKNOWN, speed, speeds
from agent.experiment import Attempt, Ending, Run

AGAIN = 2  # runs of the incumbent, before others are compared with it at another pace


def lasting(attempt: Attempt) -> Iterable[Run]:
    """Yield the runs that count although they are slow: more like those with the same seed that were void for it."""
    for run in attempt.counted_runs:
        own = speed(run) if run.ending is Ending.FINISHED else None
        void = [one for one in attempt.runs if one.seed == run.seed and one.ending is Ending.SLOWED]
        if own is None or len(void) < MOST_VOIDS:
            continue
        slow = max(speed(one) or 0.0 for one in void)
        usual = speeds(attempt, until=void[0].began or "")
        if own < ((slow + statistics.median(usual)) / 2 if usual else slow * (1 + FLOOR)):
            yield run


def changes(slowed: Iterable[Attempt], kept: Iterable[Attempt]) -> tuple[str, ...]:
    """Return when the machine's pace has changed, in order.

    slowed: the attempts with a run that was void for its speed. kept: those by which an end of the last spell is seen:
    a run that is much faster than all earlier ones of its script since then.
    """
    found = sorted(run.began for attempt in slowed for run in lasting(attempt) if run.began is not None)
    ends = [began for one in kept if found and (began := _end_of_spell(one, found[-1])) is not None]
    return (*found, *([min(ends)] if ends else []))


def _end_of_spell(attempt: Attempt, since: str) -> str | None:
    runs = [run for run in attempt.counted_runs if (run.began or "") >= since and speed(run) is not None]
    known = [speed(run) or 0.0 for run in runs]
    faster = (at for at in range(AGAIN, len(runs)) if known[at] * (1 - UNKNOWN) > max(known[:at]))
    return next((runs[at].began for at in faster), None)


def to_measure_again(history: Sequence[Attempt], best: Attempt | None, paces: Sequence[str]) -> Attempt | None:
    """Return the attempt that has to be measured again at the present pace: the incumbent, or attempt 0; else None.

    Attempt 0 needs one run, so that it can tell whether the machine becomes slower still.
    """
    if not paces or best is None:
        return None
    if sum(run.score is not None for run in best.done_runs if (run.began or "") >= paces[-1]) < AGAIN:
        return best
    return None if any((run.began or "") >= paces[-1] for run in history[0].done_runs) else history[0]


def restated(history: Sequence[Attempt], paces: Sequence[str]) -> tuple[Attempt, ...]:
    """Return the attempts with the scores of earlier paces as they would be now, by those that have runs of both."""
    for began, until in pairwise((*paces, LATEST)):
        shift_bpb = _shift_bpb(history, began, until)
        if shift_bpb:
            history = [replace(one, runs=tuple(_shifted(run, began, shift_bpb) for run in one.runs)) for one in history]
    return tuple(history)


def _shift_bpb(history: Sequence[Attempt], began: str, until: str) -> float:
    """Return by how much scores rose when a pace began; 0 where no script has runs before and since."""
    found = []
    for attempt in history:
        scored = [(run.began or "", run.score.val_bpb) for run in attempt.done_runs if run.score is not None]
        before = [bpb for at, bpb in scored if at < began and bpb is not None]
        since = [bpb for at, bpb in scored if began <= at < until and bpb is not None]
        if before and since:
            found.append(statistics.fmean(since) - statistics.fmean(before))
    return statistics.fmean(found) if found else 0.0


def _shifted(run: Run, began: str, shift_bpb: float) -> Run:
    if run.score is None or run.score.val_bpb is None or run.dawn or (run.began or "") >= began:
        return run
    score = replace(run.score, val_bpb=run.score.val_bpb + shift_bpb)
    return replace(run, score=score)
