"""Choose the stretch of scores that a chart shows, so that far-off attempts do not flatten the rest. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.view.charts.parts.palette import Spec

TOP_PX, PLAIN_TOP_PX, BOTTOM_PX = 30.0, 20.0, 14.0  # rooms at a plot's edges; crosses and arrows need more
CROSS_PX, ARROW_PX = 7.0, 20.0  # from the upper edge
OF_NOISE = 4  # times one run's standard deviation: the least stretch worth showing


@dataclass(frozen=True, slots=True)
class Frame:
    """Hold the scores at the edges of a plot, and its height."""

    low_bpb: float
    high_bpb: float
    height: float
    top_px: float

    @classmethod
    def over(cls, ends: tuple[float, float], shown: Iterable[float | None], height: float) -> "Frame":
        """Return the frame from the one score to the other, with room for crosses and arrows where there are any."""
        beyond = any(bpb is None or bpb > ends[1] for bpb in shown)
        return cls.around(*ends, height, TOP_PX if beyond else PLAIN_TOP_PX)

    @classmethod
    def around(cls, floor_bpb: float, ceiling_bpb: float, height: float, top_px: float) -> "Frame":
        """Return the frame whose rooms at the edges lie outside of the two scores."""
        per_px = (ceiling_bpb - floor_bpb) / (height - top_px - BOTTOM_PX)
        return cls(floor_bpb - BOTTOM_PX * per_px, ceiling_bpb + top_px * per_px, height, top_px)

    @property
    def floor_bpb(self) -> float:
        return self.at(self.height - BOTTOM_PX)

    @property
    def ceiling_bpb(self) -> float:
        return self.at(self.top_px)

    def at(self, y_px: float) -> float:
        """Return the score at a distance from the upper edge."""
        return self.high_bpb - (self.high_bpb - self.low_bpb) * y_px / self.height

    def y_px(self, bpb: float) -> float:
        return (self.high_bpb - bpb) / (self.high_bpb - self.low_bpb) * self.height

    def within(self, bpb: float) -> float:
        """Return a score, or that of the edge beyond which it lies."""
        if bpb > self.ceiling_bpb:
            return self.at(ARROW_PX)
        return self.at(self.height - BOTTOM_PX / 2) if bpb < self.floor_bpb else bpb

    def cut(self, bpb: float) -> float:
        """Return a score, or the end of the scale beyond which it lies."""
        return min(max(bpb, self.low_bpb), self.high_bpb)

    def channel(self, field: str, **axis: object) -> Spec:
        """Return the channel of a field of scores."""
        scale = {"domain": [self.low_bpb, self.high_bpb], "nice": False}
        axis = {"title": None, "tickCount": 6, **axis}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def stretch(kept: Sequence[float], rest: Sequence[float], sigma_bpb: float | None) -> tuple[float, float]:
    """Return the lowest and the highest score to show.

    All kept attempts are shown, and others as far from them as the kept ones lie apart, or as their noise reaches.
    """
    inside = kept or rest
    if not inside:
        return 0.0, 1.0
    low, high = min(inside), max(inside)
    reach = max(high - low, OF_NOISE * (sigma_bpb or 0.0)) if kept else 0.0
    if reach == 0.0:
        reach = statistics.median(abs(bpb - low) for bpb in rest) * 2 if rest else 0.0
    near = [bpb for bpb in rest if low - reach <= bpb <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    if low == high:
        return low - 0.005, high + 0.005  # a single score
    return low, high
