"""Is a run worth finishing? Its training loss at equal time, against the incumbent's. Pure.

A training loss is noisy, and is not a score. The night's finished runs tell what score a loss forecasts: at each of a
few fractions of the budget, a robust line (Theil 1950, Sen 1968) leads from their losses there to their final scores.
It uses the runs nearest to the incumbent, since wrecks teach nothing about it. A run is hopeless if its loss forecasts
a score above the incumbent's by more than finished runs scatter around the line. So if losses say little about scores,
little is stopped.

A script writes its own curve. With a flattering one it only wins the time of an ordinary run. An honest script can lose
more: an edit that raises only the training loss, such as label smoothing, looks worse than it is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8)  # shares of the budget; earlier losses say little, later stops save little
WINDOW = 0.1  # share of the budget: a loss is the mean over this much training before it
LEAST_RUNS = 6  # finished runs that are needed for a line through their losses and scores
NEARER = 0.75  # share of the finished runs that the line is drawn through: those with losses nearest to the incumbent's
SURE = 1 - 0.01 / len(FRACTIONS)  # certainty of each stop, since all looks together may err in 1 %

WORST_BPB = 1000.0  # a script writes its own curve, which could forecast any number

Losses = Mapping[float, float]  # fraction of the budget → training loss there; without those that are not reached yet


@dataclass(frozen=True, slots=True)
class Finished:
    """The losses and the score of a finished run."""

    losses: Losses
    val_bpb: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Limit a run's loss at a fraction of its budget."""

    fraction: float
    loss: float
    slope: float  # slope of its line: bits per byte for each nat of loss
    offset_bpb: float  # the line's bits per byte at a loss of zero

    def forecast_bpb(self, losses: Losses) -> float | None:
        """Return the score that these losses forecast, if it is hopeless; None if not, or before the fraction."""
        loss = losses.get(self.fraction, -math.inf)
        return min(self.offset_bpb + self.slope * loss, WORST_BPB) if loss > self.loss else None


Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # a mean of larger numbers may be infinite or NaN


class Point(msgspec.Struct):
    """The part of a line of metrics.jsonl that is read; the rest is ignored."""

    progress: Annotated[float, msgspec.Meta(ge=0, le=1)]  # fraction of the budget
    loss: Finite
    step: Finite | None = None
    tokens_s: Finite | None = None


def point_of(line: bytes) -> Point | None:
    """Read a line; None for one that is no point of a curve, or is cut off in the middle of a write."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_DECODER = msgspec.json.Decoder(Point)


def points_of(curve: bytes) -> list[tuple[float, float]]:
    """Read fraction of the budget and loss from the points of a metrics.jsonl, in the order of the fractions."""
    points = filter(None, map(point_of, curve.splitlines()))
    return sorted((point.progress, point.loss) for point in points)


def losses(curve: bytes) -> Losses:
    """Return the losses at FRACTIONS from a metrics.jsonl, each the mean over the window before.

    Where the window holds no step, interpolate between the steps around it.
    """
    fractions, values = np.array(points_of(curve)).reshape(-1, 2).T  # (points,) each
    by_fraction = {}
    for mark in FRACTIONS:
        if fractions.size and fractions[0] <= mark <= fractions[-1]:
            window = values[(mark - WINDOW < fractions) & (fractions <= mark)]
            by_fraction[mark] = float(window.mean() if window.size else np.interp(mark, fractions, values))
    return by_fraction


def bounds(finished: Sequence[Finished], incumbent: Finished) -> tuple[Bound, ...]:
    """Return a bound for each fraction at which the finished runs relate losses to scores."""
    learnt = (_bound(mark, finished, incumbent) for mark in FRACTIONS if mark in incumbent.losses)
    return tuple(filter(None, learnt))


def _bound(mark: float, finished: Sequence[Finished], incumbent: Finished) -> Bound | None:
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

    slope, offset = map(float, stats.theilslopes(val_bpb, loss)[:2])
    if not slope > 0:
        return None  # a lower loss has not meant a lower score
    errors, freedom = val_bpb - offset - slope * loss, len(near) - 2
    error_bpb = math.sqrt(float(errors @ errors) / freedom * (1 + 1 / len(near)))  # the standard error of one forecast
    margin_bpb = float(stats.t.ppf(SURE, freedom)) * error_bpb
    return Bound(mark, max((incumbent.val_bpb + margin_bpb - offset) / slope, here), slope, offset)
