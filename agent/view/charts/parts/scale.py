"""Scale values along a plot: linear, or logarithmic where positive values span more than a decade. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent.view.charts.parts.palette import Spec

EDGE_PX = 20.0  # free at both ends: half of a label
DECADE = 10.0
TINY, HUGE = 1e-200, 1e200  # beyond these, the ends of a logarithmic scale might be no numbers


@dataclass(frozen=True, slots=True)
class Scale:
    """Hold the values at the left and the right end of a plot."""

    low: float
    high: float
    log: bool
    width: float

    @classmethod
    def around(cls, values: Sequence[float], width: float) -> "Scale":
        """Return the scale that shows all values, and some room beside them."""
        low, high = min(values), max(values)
        log = low > TINY and high < HUGE and high / low >= DECADE
        first, last = (math.log(low), math.log(high)) if log else (low, high)
        room = EDGE_PX / (width - 2 * EDGE_PX) * (last - first) or abs(first) * 0.1 or 1.0
        first, last = first - room, last + room
        return cls(math.exp(first), math.exp(last), log, width) if log else cls(first, last, log, width)

    def px(self, value: float) -> float:
        """Return the distance of a value from the left end."""
        ends = (self.low, self.high, value)
        low, high, at = map(math.log, ends) if self.log else ends
        return (at - low) / (high - low) * self.width

    def channel(self, field: str, **axis: object) -> Spec:
        """Return the channel of a field on this scale."""
        scale = {"type": "log" if self.log else "linear", "domain": [self.low, self.high], "nice": False, "zero": False}
        return {
            "field": field,
            "type": "quantitative",
            "scale": scale,
            "axis": {"labelOverlap": True, "labelSeparation": 4, "labelFlush": True, **axis},
        }
