"""Find places for sloped labels of points, so that none covers another: in pixels from the upper left."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.text import one_line, shorten
from agent.view.charts.parts.palette import Spec
from agent.view.charts.parts.style import words_at
from agent.view.charts.parts.words import FONT_PX, fitting, text_px

DEGREES = 18
COS, SIN = math.cos(math.radians(DEGREES)), math.sin(math.radians(DEGREES))
AWAY_PX = 8.0  # of a label from its point
LINE_PX, POINT_PX = FONT_PX + 2, 4.0  # a label's height, and a point's radius
LEAST_CHARS, MOST_CHARS = 10, 42  # a title that must be cut to fewer characters has no label
MOST_LABELS = 40
PER_DOT = 5  # characters that a label gives up for each dot that it does not cover
Dot = tuple[float, float]  # x and y


@dataclass(frozen=True, slots=True)
class Labelled:
    """Hold a point that should have a label, with its title."""

    at: Dot
    title: str


@dataclass(frozen=True, slots=True)
class Label:
    """Hold a label: it begins to the right above its point, or ends to the left below."""

    point: Labelled
    text: str
    begins: bool


@dataclass(frozen=True, slots=True)
class _Strip:
    """Hold a rectangle in the frame that is turned with the labels."""

    left: float
    right: float
    middle: float
    height: float

    def covers(self, other: "_Strip") -> bool:
        apart = abs(self.middle - other.middle)
        return self.left < other.right and other.left < self.right and apart < (self.height + other.height) / 2


def placed(points: Sequence[Labelled], dots: Sequence[Dot], width: float, height: float) -> list[Label]:
    """Return the labels that have room, given the most important point first; keep them off other dots if possible."""
    avoided = [_around(dot) for dot in dots]
    labels: list[Label] = []
    for point in points[:MOST_LABELS]:
        # neither another label nor another point
        others = [*map(_strip, labels), *(_around(other.at) for other in points if other.at != point.at)]
        free = [label for label in _candidates(point, width, height) if not any(map(_strip(label).covers, others))]
        if free:
            covered = {label: sum(map(_strip(label).covers, avoided)) for label in free}
            labels.append(min(free, key=lambda label: PER_DOT * covered[label] - len(label.text)))
    return labels


def _candidates(point: Labelled, width: float, height: float) -> Iterator[Label]:
    """Offer a label on each side of a point that has room for one."""
    x, y = point.at
    wanted = shorten(one_line(point.title, 10 * MOST_CHARS), MOST_CHARS)
    for begins, across_px, up_px in ((True, width - x, y), (False, x, height - y)):
        text = fitting(wanted, max(1.0, min(across_px / COS, up_px / SIN) - AWAY_PX))
        if text == wanted or len(text) >= LEAST_CHARS:
            yield Label(point, text, begins)


def _strip(label: Label) -> _Strip:
    length = text_px(label.text)
    ends = (AWAY_PX, AWAY_PX + length) if label.begins else (-AWAY_PX - length, -AWAY_PX)
    return _turned(label.point.at, *ends, LINE_PX)


def _around(dot: Dot) -> _Strip:
    return _turned(dot, -POINT_PX, POINT_PX, 2 * POINT_PX)


def _turned(dot: Dot, left: float, right: float, height: float) -> _Strip:
    """Return a box around a line through a dot, in coordinates along the slope and across it."""
    x, y = dot
    along, across = x * COS - y * SIN, y * COS + x * SIN
    return _Strip(along + left, along + right, across, height)


def sloped(labels: Sequence[Label]) -> list[Spec]:
    """Write labels at their places."""
    layers: list[Spec] = []
    for begins, align in ((True, "left"), (False, "right")):
        away = AWAY_PX if begins else -AWAY_PX
        values = [
            {"x": round(x + away * COS, 1), "y": round(y - away * SIN, 1), "text": one.text}
            for one in labels
            for x, y in [one.point.at]
            if one.begins == begins
        ]
        layers += words_at(values, align=align, angle=-DEGREES)
    return layers
