"""Draw panels of horizontal bars, with names to their left and words to their right."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.text import one_line
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.style import layer, pixels, words_at
from agent.view.charts.parts.words import FONT_PX, TITLE_CHARS, fitting, heading, text_px

ROW_PX, BAR_PX, GAP_PX = 24, 11, 8


@dataclass(frozen=True, slots=True)
class Bar:
    """Hold a bar's length, the part of it that is coloured, and words for it."""

    name: str
    length: float
    words: str
    part: float | None = None  # None: all of it


def bars(title: str, rows: Sequence[Bar], width: float, names_px: float) -> Spec:
    """Return a panel of bars; names_px: the room for names, 0 where a panel to the left has them."""
    words_px = max(text_px(row.words) for row in rows) + GAP_PX
    room = max(20.0, width - names_px - words_px)
    per_unit = room / (max(row.length for row in rows) or 1.0)
    middles = [(at + 0.5) * ROW_PX for at in range(len(rows))]
    names = [
        {"x": 0, "y": y, "text": fitting(row.name, names_px - GAP_PX)} for row, y in zip(rows, middles, strict=True)
    ]
    words = [
        {"x": round(names_px + row.length * per_unit + GAP_PX, 1), "y": y, "text": row.words}
        for row, y in zip(rows, middles, strict=True)
    ]
    layers = []
    for colour, lengths in (
        (Colour.GRID, [row.length if row.part is not None else 0.0 for row in rows]),
        (Colour.KEPT, [row.length if row.part is None else row.part for row in rows]),
    ):
        values = [
            {"x": names_px, "x2": round(names_px + length * per_unit, 1), "y": y - BAR_PX / 2, "y2": y + BAR_PX / 2}
            | {"label": f"{title}, {one_line(row.name, TITLE_CHARS)}: {row.words}"}
            for row, length, y in zip(rows, lengths, middles, strict=True)
            if length > 0
        ]
        ends = {"x": pixels("x"), "x2": {"field": "x2"}, "y": pixels("y"), "y2": {"field": "y2"}}
        layers.append(layer(values, {"type": "rect", "color": colour}, ends | {"description": {"field": "label"}}))
    head = heading(title, [], width, FONT_PX)
    layers += [*words_at(names if names_px else [], align="left"), *words_at(words, align="left")]
    return {"width": width, "height": ROW_PX * len(rows), "layer": layers, "title": head}
