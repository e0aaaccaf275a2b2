"""Take out of scores what the machine's own speed did to them. Pure.

A run that the machine lets train faster reads more text and scores better, whatever was edited. One script's speeds
differ by some per cent on a GPU, by far more on a CPU beside other programs, and they drift: three repeats in a row are
alike, so their scatter does not tell. Where an edit turned nothing that can change the time of a step, the ratio of two
speeds is the machine's, and what it brought is taken out. Where an edit may have changed the speed, all of it counts.

What a share of speed is worth is learnt from repeats of one script, beginning with what it was elsewhere.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from agent.errors import ScriptError
from agent.experiment import Attempt, unpacked
from agent.script.dials import Range, read_dials

# By how much of itself val_bpb falls when a run reads e times the text. Runs of 40 s on H100 differed least from each
# other with 0.08 (books) and 0.2 (source code), on a CPU with some 0.2. The spread lets a night learn its own.
WORTH, SPREAD, MOST_WORTH = 0.12, 0.05, 0.3
SCATTER = 0.005  # share of a score by which repeats differ at one speed
MOST = 0.25  # largest difference of speed that is taken out, in natural log: the script itself reports its steps


class Correction(NamedTuple):
    """What is added to a score, in bits per byte."""

    added: float
    error: float  # standard deviation of it, since the worth of speed is not known exactly


NONE = Correction(0.0, 0.0)


def at_one_speed(attempts: Sequence[Attempt]) -> Mapping[tuple[int, int], Correction]:
    """Return (attempt number, seed) → what to add to the run's score, for the speed of the first script of its kind.

    Each attempt comes after its parent, and is of its kind where a step takes the same time. A run that tells no speed,
    and a score that a script reports in a unit of its own, stay as they are.
    """
    first: dict[int, Attempt] = {}  # attempt → the first one of its kind
    speeds = {attempt.number: {} if attempt.is_reported else _log_speeds(attempt) for attempt in attempts}
    for attempt in attempts:
        before = None if attempt.parent is None else first[attempt.parent]
        first[attempt.number] = before if before is not None and same_step_time(attempt, before) else attempt
    worth_bpb, error_bpb = _worth_bpb([(attempt.scores_by_seed, speeds[attempt.number]) for attempt in attempts])
    usual = {number: statistics.fmean(own.values()) for number, own in speeds.items() if own}
    corrections = {}
    for number, own in speeds.items():
        for seed, speed in own.items():
            by = speed - usual.get(first[number].number, speed)
            by = max(-MOST, min(MOST, by))
            corrections[number, seed] = Correction(worth_bpb * by, error_bpb * abs(by))
    return corrections


def machine_speed(attempt: Attempt, parent: Attempt) -> float | None:
    """Return the machine's speed in an attempt's runs, over that in its parent's.

    None where it is not known, as the edit may have changed it.
    """
    ours, theirs = _log_speeds(attempt).values(), _log_speeds(parent).values()
    if attempt.is_reported or not (ours and theirs and same_step_time(attempt, parent)):
        return None
    return math.exp(statistics.fmean(ours) - statistics.fmean(theirs))


def same_step_time(attempt: Attempt, parent: Attempt) -> bool:
    """Return whether an edit cannot have changed how long a step takes.

    It turned dials alone, each of them a decimal number with a range, as rates and decays are, and no parameter came
    or went. Sizes, counts and choices may all change a step.
    """
    ours, theirs = attempt.outline.dials, parent.outline.dials
    if not attempt.outline.differs_in_dials_only(parent.outline) or attempt.saved_params != parent.saved_params:
        return False
    turned = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    return turned <= _rates(parent.proposal.packed) if turned else True


@lru_cache(maxsize=64)
def _rates(packed: bytes) -> frozenset[str]:
    """Return the dials of a script that are decimal numbers with a range; none of one that cannot be read."""
    try:
        dials = read_dials(unpacked(packed), "cpu", strict=False) if packed else ()
    except (ScriptError, ValueError):
        return frozenset()
    return frozenset(dial.name for dial in dials if isinstance(dial.span, Range) and isinstance(dial.value, float))


def _log_speeds(attempt: Attempt) -> Mapping[int, float]:
    """Return seed → natural log of steps a second, of the runs that have a score."""
    speeds = {run.seed: run.steps_s for run in attempt.done_runs if run.val_bpb is not None}
    return {seed: math.log(speed) for seed, speed in speeds.items() if speed}


def _worth_bpb(measured: Iterable[tuple[Mapping[int, float], Mapping[int, float]]]) -> tuple[float, float]:
    """Return by how much a score falls where a run is e times as fast, and the standard deviation of that.

    measured: scores and log speeds by seed, of each script. It is a regression within each that was repeated, with a
    normal prior.
    """
    pairs = [
        [(scores[seed], speed) for seed, speed in speeds.items()] for scores, speeds in measured if len(speeds) > 1
    ]
    level = abs(statistics.fmean(score for own in pairs for score, _ in own)) if pairs else 0.0
    precision, told = SPREAD**-2, WORTH * SPREAD**-2
    for own in pairs:
        middle_bpb, middle = (statistics.fmean(column) for column in zip(*own, strict=True))
        precision += sum((speed - middle) ** 2 for _, speed in own) / SCATTER**2
        told -= sum((speed - middle) * (score - middle_bpb) for score, speed in own) / (SCATTER**2 * level)
    return min(MOST_WORTH, max(0.0, told / precision)) * level, precision**-0.5 * level
