"""Is a run worth finishing? Its training loss at equal time, against the incumbent's. Pure.

A training loss is noisy and is no score. What one is worth in bits per byte is learnt from the runs that the night has
finished: at each of a few fractions of the budget, a line through their losses there and their scores at the end, one
that a few odd runs do not bend (Theil 1950, Sen 1968), by the runs that are nearest to the incumbent: wrecks teach
nothing about it. A run whose loss forecasts a score above the incumbent's, and by more than finished runs stray from
that line, is hopeless. So where losses say little about scores, little is stopped.

A script writes its own curve. All that it can win with a flattering one is the time that it was to have anyway. An
honest one can lose more: an edit that raises the training loss alone, such as label smoothing, looks worse than it is.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.text import is_finite

FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)  # of the budget: before, losses say little; later, there is little left to save
WINDOW = 0.1  # of the budget: a loss is the mean over this much before it
LEAST_RUNS = 6  # finished ones, before a line through them means anything
NEARER = 0.75  # share of them that are asked, by the distance of their losses from the incumbent's
SURE = 1 - 0.01 / len(FRACTIONS)  # that the score would have been above the incumbent's: 0.01 for all looks together

Losses = Mapping[float, float]  # fraction of the budget → training loss there; without those that are not reached yet


@dataclass(frozen=True, slots=True)
class Finished:
    """Hold the losses and the score of a finished run."""

    losses: Losses
    val_bpb: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Limit a run's loss at a fraction of its budget."""

    fraction: float
    loss: float
    incumbent_loss: float
    slope: float  # of the line that it was read from: bits per byte for each nat of loss …
    offset_bpb: float  # … and at a loss of zero

    def forecast_bpb(self, losses: Losses) -> float | None:
        """Forecast the score of a run with these losses; None if it has not reached the fraction."""
        loss = losses.get(self.fraction)
        return None if loss is None else self.offset_bpb + self.slope * loss

    def verdict(self, losses: Losses) -> str | None:
        """Return why a run with these losses is hopeless; None if it is not, or has not reached the fraction."""
        loss = losses.get(self.fraction)
        if loss is None or not loss > self.loss:
            return None
        above = loss - self.incumbent_loss
        return f"stopped early at {self.fraction:.0%}: its loss was {above:.3f} above the incumbent's"


def losses(curve: bytes) -> Losses:
    """Read the losses at FRACTIONS from a metrics.jsonl; skip lines that are no point of a curve."""
    points = points_of(curve)
    reached = [mark for mark in FRACTIONS if points and points[0][0] <= mark <= points[-1][0]]
    return {mark: _loss_at(mark, points) for mark in reached}


def points_of(curve: bytes) -> list[tuple[float, float]]:
    """Read fraction of the budget and loss from the lines of a metrics.jsonl, in the order of the fractions."""
    return sorted(point for line in curve.splitlines() if (point := _point(line)) is not None)


def _point(line: bytes) -> tuple[float, float] | None:
    """Parse progress and loss from a line; None if it has neither, or is cut off in the middle of a write."""
    try:
        said = json.loads(line)
        fraction, loss = said["progress"], said["loss"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    plausible = is_finite(fraction) and is_finite(loss) and 0 <= fraction <= 1
    return (float(fraction), float(loss)) if plausible else None


def _loss_at(mark: float, points: Sequence[tuple[float, float]]) -> float:
    """Return the mean loss over the window before; if it holds no step, interpolate between the steps around it."""
    fractions, values = np.array(points).T  # (points,) each
    window = values[(mark - WINDOW < fractions) & (fractions <= mark)]
    return float(window.mean() if len(window) else np.interp(mark, fractions, values))


def bounds(finished: Sequence[Finished], incumbent: Finished, sure: float = SURE) -> tuple[Bound, ...]:
    """Return a bound for each fraction at which the finished runs relate losses to scores."""
    learnt = (_bound(mark, finished, incumbent, sure) for mark in FRACTIONS if mark in incumbent.losses)
    return tuple(bound for bound in learnt if bound is not None)


def _bound(mark: float, finished: Sequence[Finished], incumbent: Finished, sure: float) -> Bound | None:
    """Return the loss whose forecast exceeds the incumbent's score by a one-sided prediction interval."""
    here = incumbent.losses[mark]
    by_distance = sorted((run for run in finished if mark in run.losses), key=lambda run: abs(run.losses[mark] - here))
    if len(by_distance) < LEAST_RUNS:
        return None
    near = by_distance[: max(LEAST_RUNS, math.ceil(NEARER * len(by_distance)))]
    loss, val_bpb = np.array([(run.losses[mark], run.val_bpb) for run in near]).T  # (runs,) each
    if np.ptp(loss) == 0:
        return None  # no line through one point
    from scipy import stats  # takes a second to import; most nights do without

    line = stats.theilslopes(val_bpb, loss)
    slope, offset = float(line.slope), float(line.intercept)
    if not slope > 0:
        return None  # a lower loss has not meant a lower score
    runs = len(near)
    sigma_bpb = math.sqrt(float(((val_bpb - offset - slope * loss) ** 2).sum()) / (runs - 2))
    margin_bpb = float(stats.t.ppf(sure, runs - 2)) * sigma_bpb * math.sqrt(1 + 1 / runs)
    return Bound(mark, max((incumbent.val_bpb + margin_bpb - offset) / slope, here), here, slope, offset)
