"""The dials of a script as axes of a space: from values to places, and back to values as they are written."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.script.dials import Choices, Dial, Range, Value, is_number, show

Coordinates = npt.NDArray[np.float64]  # (D,), a coordinate for every dial

MIN_STEP = 0.04  # of a dial's range: smaller turns drown in the noise of the seed
MAX_STEP = 0.4  # of a dial's range; another step can go further
CHOICE_STEP = 0.35  # of a range, that the next number of a list counts as: people write choices that differ
RADIUS, STEPS = 0.2, 8  # of a range, about a good place: how far a turn goes, in how many steps
TURNED = (1, 1, 1, 2, 2, 3)  # dials at once, where nothing better is left


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
    def ordered(self) -> bool:
        return self.options is None or all(is_number(option) for option in self.options)

    def place(self, value: Value) -> float | None:
        """Return the place of a value; None if it is of another kind than the dial."""
        if self.options is not None and not self.ordered:
            return float(self.options.index(value)) if value in self.options else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        if self.options is not None:
            spots = CHOICE_STEP * np.arange(len(self.options))
            return float(np.interp(value, np.array(self.options, np.float64), spots))
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else None
        return (value - self.low) / (self.high - self.low)

    def value(self, place: float) -> Value:
        """Return the value at a place, as it will be written."""
        if self.options is not None:
            return self.options[round(place / self._spacing)]
        at = self.low * (self.high / self.low) ** place if self.log else self.low + place * (self.high - self.low)
        return round(at) if isinstance(self.dial.value, int) else float(show(float(at)))

    def turn(self, place: float, rng: random.Random) -> float:
        """Draw another place: the next number, any other word, or a step of MIN_STEP to MAX_STEP."""
        if self.options is None:
            to = place + rng.choice((-1, 1)) * rng.uniform(MIN_STEP, MAX_STEP)
            return min(1.0, max(0.0, to))
        here, last = round(place / self._spacing), len(self.options) - 1
        if self.ordered:
            return min(last, max(0, here + rng.choice((-1, 1)))) * self._spacing
        return rng.choice([i for i in range(last + 1) if i != here]) * self._spacing

    def near(self, centre: float, here: float) -> list[float]:
        """Return the places of a trust region about `centre`, and `here`: none that differs too little from it."""
        if self.options is None:
            grid = np.clip(centre + np.linspace(-RADIUS, RADIUS, 2 * STEPS + 1), 0.0, 1.0).tolist()
            return [here, *(place for place in dict.fromkeys(grid) if abs(place - here) >= MIN_STEP)]
        indices = range(len(self.options))
        if self.ordered:
            middle = round(centre / self._spacing)
            indices = range(max(0, middle - 1), min(len(self.options), middle + 2))
        spots = [i * self._spacing for i in indices]
        return [here, *(spot for spot in spots if not math.isclose(spot, here, abs_tol=1e-9))]

    @property
    def _spacing(self) -> float:
        """Return the distance between neighbouring choices."""
        return CHOICE_STEP if self.ordered else 1.0


def draw_near(axes: Sequence[Axis], here: Coordinates, count: int, rng: random.Random) -> list[Coordinates]:
    """Draw places that differ from `here` in one to three dials."""
    drawn = []
    for _ in range(count):
        place = here.copy()
        for i in rng.sample(range(len(axes)), min(len(axes), rng.choice(TURNED))):
            place[i] = axes[i].turn(float(here[i]), rng)
        drawn.append(place)
    return drawn


def turned(axes: Sequence[Axis], here: Coordinates, there: Coordinates) -> dict[str, Value]:
    """Return the dials that differ, with their new values, without steps too small to matter."""
    found = {}
    for axis, old, new in zip(axes, here, there, strict=True):
        value = axis.value(float(new))
        is_step = axis.options is not None or isinstance(axis.dial.value, int) or abs(new - old) >= MIN_STEP * 0.99
        if is_step and value != axis.dial.value:
            found[axis.dial.name] = value
    return found
