"""Read the dials of a script as axes of a space, and what this night and earlier ones measured as places in it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.experiment import Attempt, Ending, History, Status
from agent.judging.failures import too_slow
from agent.proposers.proposer import Briefing
from agent.records.record import likeness
from agent.script.dials import Choices, Dial, Range, Value, is_number, show

Coordinates = npt.NDArray[np.float64]  # (D,), a coordinate for every dial

MIN_STEP = 0.04  # share of a dial's range; smaller turns drown in the noise of the seed
CHOICE_STEP = 0.35  # share of a range that the next number of a list counts as: people write choices that differ
STEPS = 8  # steps on each side of a place
FARTHEST = 1000.0  # ranges; from 10⁷ on no curve can be computed, and what is so far away tells nothing here
MOST = 300  # the model reads this many of the latest attempts, which bounds a proposal's time

# ---- dials as axes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """A dial as an axis. Numbers are in order, also where they are choices: neighbours are alike. Words are not.

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


# ---- attempts as places ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """An attempt as a place among the dials; scores are compared only within a group."""

    place: Coordinates
    bpb: float | None  # score, or the forecast of a run that was ended early; None where there is neither
    runs: float  # it is worth as many of tonight's runs
    crashed: bool  # whether it crashed or overran: both happen beyond some edge among the dials
    group: str
    is_tonight: bool


def observed(axes: Sequence[Axis], briefing: Briefing) -> list[Observation]:
    """Return what is known in order of time: tonight's latest attempts, before them the most alike of earlier ones."""
    tonight = [*_of_tonight(axes, briefing)]
    return [*_of_earlier(axes, briefing, MOST - len(tonight)), *tonight]


def crashed(attempt: Attempt) -> bool:
    return attempt.status is Status.CRASH or too_slow(attempt) is not None


def _of_tonight(axes: Sequence[Axis], briefing: Briefing) -> Iterator[Observation]:
    for attempt in briefing.history[-MOST:]:
        runs, place = max(1, len(attempt.scores_bpb)), _place(axes, attempt.outline.dials)
        if place is not None:
            group = f" {attempt.outline.skeleton}"
            yield Observation(
                place, _score_of(attempt, briefing.history), runs, crashed(attempt), group, is_tonight=True
            )


def _of_earlier(axes: Sequence[Axis], briefing: Briefing, most: int) -> Iterator[Observation]:
    """Yield the attempts of earlier nights, in this night's noise; each run counts by its night's likeness."""
    sigma_bpb = briefing.sigma_bpb
    alike = sorted(((likeness(past.night, briefing.night), past) for past in briefing.past), key=lambda pair: pair[0])
    told = [(like, past, attempt) for like, past in alike if like for attempt in past.attempts]
    for like, past, attempt in told[max(0, len(told) - most) :]:
        scale = sigma_bpb / past.sigma_bpb if sigma_bpb and past.sigma_bpb and like < 1 else 1.0
        place = _place(axes, attempt.outline.dials)
        if place is not None:
            bpb = None if attempt.val_bpb is None else attempt.val_bpb * scale
            runs, group = max(1, len(attempt.scores_bpb)) * like, f"{past.night.tag} {attempt.outline.skeleton}"
            yield Observation(place, bpb, runs, crashed(attempt), group, is_tonight=False)


def _place(axes: Sequence[Axis], values: Mapping[str, Value]) -> Coordinates | None:
    """Return the place of these dials; None if the script has none of them, or one has no place near its range."""
    if not any(axis.dial.name in values for axis in axes):
        return None
    # A dial that is not there says nothing: it counts as where it is now.
    place = np.array([axis.place(values.get(axis.dial.name, axis.dial.value)) for axis in axes], np.float64)
    return place if (np.abs(place) < FARTHEST).all() else None


def _score_of(attempt: Attempt, history: History) -> float | None:
    """Return the score, or the forecast of a run that was stopped early: without it, its place would look unknown."""
    if attempt.val_bpb is not None or attempt.gain_bpb is None or attempt.parent is None:
        return attempt.val_bpb
    parent_bpb = history[attempt.parent].val_bpb
    if parent_bpb is None or not any(run.ending is Ending.HOPELESS for run in attempt.done_runs):
        return None
    return parent_bpb - attempt.gain_bpb
