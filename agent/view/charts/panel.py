"""Give a night's panel of the progress chart its scales."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.view.charts.parts.frame import Frame, stretch
from agent.view.charts.parts.palette import Spec
from agent.view.charts.parts.symbols import Symbol, symbol
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.series import Course, progress

LEFT_PX, DAWN_PX = 6.0, 22.0  # left of the first attempt; between the last one, the honest gain, and the right edge
TICK_PX = 55


@dataclass(frozen=True, slots=True)
class Panel:
    """Hold a night with the scales of its panel."""

    night: NightFacts
    course: Course
    shown: tuple[AttemptFacts, ...]  # ideas, and the script of dawn that was kept
    frame: Frame
    width: float
    last: int  # the number at the right end of the scale

    @classmethod
    def of(cls, night: NightFacts, frame: Frame, width: float) -> "Panel":
        """Return the panel of a night on a vertical scale."""
        course = progress(night)
        numbers = {spot.number for spot in course.points}
        shown = tuple(one for one in night.attempts if one.number in numbers)
        return cls(night, course, shown, frame, width, max([1, *numbers]))

    @property
    def per_px(self) -> float:
        return self.last / (self.width - LEFT_PX - 2 * DAWN_PX)

    @property
    def dawn_at(self) -> float:
        """Return the number at which the honest gain is drawn."""
        return self.last + DAWN_PX * self.per_px

    def place(self, number: float, bpb: float) -> tuple[float, float]:
        """Return the pixels of a score from the plot's upper left corner."""
        return LEFT_PX + number / self.per_px, self.frame.y_px(bpb)

    @property
    def x(self) -> Spec:
        """Return the channel of the attempts' numbers."""
        axis = {"title": "attempt", "grid": False, "format": ",d", "values": _ticks(self.last, self.width)}
        domain = [-LEFT_PX * self.per_px, self.last + 2 * DAWN_PX * self.per_px]
        return {"field": "n", "type": "quantitative", "scale": {"domain": domain, "nice": False}, "axis": axis}

    @property
    def y(self) -> Spec:
        """Return the channel of the scores."""
        return self.frame.channel("bpb")


def _ticks(last: int, width: float) -> list[int]:
    """Return round numbers from 0 to the last one."""
    steps = (head * 10**zeros for zeros in range(10) for head in (1, 2, 5))
    return list(range(0, last + 1, next(step for step in steps if last / step <= width // TICK_PX)))


def ends_of(night: NightFacts) -> tuple[float, float]:
    """Return the lowest and the highest score that a night's panel shows in full."""
    kept: list[float] = []
    rest: list[float] = []
    for one in night.attempts:
        if one.is_idea and one.val_bpb is not None and symbol(one) not in (Symbol.DOUBTED, Symbol.CRASHED):
            (kept if symbol(one) is Symbol.KEPT else rest).append(one.val_bpb)
    low, high = stretch(kept, rest, night.sigma_bpb)
    more = _levels(night, progress(night))
    return min([low, *more]), max([high, *more])


def _levels(night: NightFacts, course: Course) -> Sequence[float]:
    """Return the scores that the staircase begins and ends with, and those of the honest gain."""
    if not course.staircase:
        return []
    first, last = course.staircase[0].mean_bpb, course.staircase[-1].mean_bpb
    honest = night.dawn.honest if night.dawn is not None else None
    return [first, last] if honest is None else [first, last, first - honest.low_bpb, first - honest.high_bpb]
