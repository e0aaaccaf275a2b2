"""The dials of a script as axes of a space: from values to places, and back to values as they are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.script.dials import Choices, Dial, Range, Value, is_number, show

Coordinates = npt.NDArray[np.float64]  # (D,), a coordinate for every dial

MIN_STEP = 0.04  # of a dial's range: smaller turns drown in the noise of the seed
CHOICE_STEP = 0.35  # of a range, that the next number of a list counts as: people write choices that differ
STEPS = 8  # on each side of a place


@dataclass(frozen=True, slots=True)
class Axis:
    """Hold one dial. Numbers are in order, also where they are choices: neighbours are alike. Words are not.

    An interval's places go from 0 to 1, those of choices on from 0.
    """

    dial: Dial
    options: tuple[Value, ...] | None  # None: an interval
    low: float = 0.0
    high: float = 1.0
    log: bool = False

    @classmethod
    def of(cls, dial: Dial) -> "Axis":
        """Make the axis of a dial; it always contains the user's own value, even outside the dial's range."""
        match dial.span:
            case Range(low, high, log):
                here = float(dial.value) if isinstance(dial.value, int | float) else low
                return cls(dial, None, min(low, here), max(high, here), log)
            case Choices(values):
                options = values if dial.value in values else (*values, dial.value)
                numbers = all(is_number(option) for option in options)
                return cls(dial, tuple(sorted(options)) if numbers else options)  # type: ignore[type-var]
        raise ValueError(f"dial {dial.name} has no range")

    @property
    def words(self) -> int:
        """Return how many words the dial has; 0 where its values are numbers."""
        return 0 if self.options is None or all(is_number(option) for option in self.options) else len(self.options)

    @property
    def spacing(self) -> float:
        """Return the distance between neighbouring choices."""
        return 1.0 if self.words else CHOICE_STEP

    def place(self, value: Value) -> float | None:
        """Return the place of a value; None if it is no choice, or of another kind than the dial."""
        if not self.words and not is_number(value):
            return None
        if self.options is not None:
            return self.spacing * self.options.index(value) if value in self.options else None
        assert isinstance(value, int | float)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else None
        return (value - self.low) / (self.high - self.low)

    def value(self, place: float) -> Value:
        """Return the value at a place, as it will be written."""
        if self.options is not None:
            return self.options[round(place / self.spacing)]
        at = self.low * (self.high / self.low) ** place if self.log else self.low + place * (self.high - self.low)
        return round(at) if isinstance(self.dial.value, int) else float(show(float(at)))

    def near(self, centre: float, here: float, radius: float) -> list[float]:
        """Return `here`, and places within a radius of `centre` that differ enough from it: the next choices at least.

        Any word is near another. radius: 1 for the whole range.
        """
        if self.options is None:
            places = np.clip(centre + np.linspace(-radius, radius, 2 * STEPS + 1), 0.0, 1.0).tolist()
        else:
            reach = math.inf if self.words or radius == 1 else max(radius, 1.01 * CHOICE_STEP)
            spots = [self.spacing * index for index in range(len(self.options))]
            places = [spot for spot in spots if abs(spot - centre) <= reach]
        return [here, *(place for place in places if abs(place - here) >= MIN_STEP)]


def turned(axes: Sequence[Axis], here: Coordinates, there: Coordinates) -> dict[str, Value]:
    """Return the dials that differ, with their new values."""
    values = {axis.dial: axis.value(float(new)) for axis, old, new in zip(axes, here, there, strict=True) if new != old}
    return {dial.name: value for dial, value in values.items() if value != dial.value}
