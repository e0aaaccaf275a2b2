"""Set the type and the axes of all charts, and put their panels together."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.text import one_line
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.words import FONT_PX

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
GUTTER_PX, RIGHT_PX = 50, 6  # beside each plot: the labels of its vertical axis, and half of a label below
PANEL_GAP_PX = 22
MOST_CHARS = 1000  # of the text that describes a chart to a screen reader
AXIS = {
    "domain": False,
    "ticks": False,
    "gridColor": Colour.GRID,
    "labelColor": Colour.FAINT,
    "titleColor": Colour.FAINT,
    "labelFontSize": FONT_PX,
    "titleFontSize": FONT_PX,
    "titleFontWeight": "normal",
    "labelPadding": 6,
}
CONFIG = {
    "font": "sans-serif",
    "axis": AXIS,
    "axisY": {"minExtent": GUTTER_PX, "maxExtent": GUTTER_PX, "labelLimit": GUTTER_PX - 6},
    "legend": {
        "labelColor": Colour.INK,
        "labelFontSize": FONT_PX,
        "labelLimit": 260,
        "symbolOpacity": 1,
        "symbolStrokeWidth": 1.5,
        "offset": 6,
        "columnPadding": 14,
    },
    "view": {"stroke": None},
    "concat": {"spacing": PANEL_GAP_PX},
}


def chart(panels: Sequence[Spec], description: str, columns: int = 1) -> Spec:
    """Put panels side by side into one specification, with the style of all charts."""
    body: Spec = dict(panels[0]) if len(panels) == 1 else {"concat": list(panels), "columns": columns}
    return {"$schema": SCHEMA, **body, "description": one_line(description, MOST_CHARS), "config": CONFIG, "padding": 4}


def plot_px(width: int, columns: int = 1) -> int:
    """Return the width of each panel's plot where panels of a chart lie side by side in columns."""
    beside = columns * (GUTTER_PX + RIGHT_PX) + (columns - 1) * PANEL_GAP_PX + 8
    return max(80, (width - beside) // columns)


def layer(values: Sequence[Mapping[str, Any]], mark: Spec, encoding: Spec) -> Spec:
    """Return marks of one kind with their data."""
    return {"data": {"values": list(values)}, "mark": mark, "encoding": encoding}


def pixels(field: str) -> Spec:
    """Return the channel of a field that holds pixels from the plot's upper left corner."""
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def words_at(values: Sequence[Mapping[str, Any]], **look: Any) -> list[Spec]:
    """Write the texts of values at their places in pixels, above a halo in the colour of the paper."""
    encoding = {"x": pixels("x"), "y": pixels("y"), "text": {"field": "text"}}
    mark = {"type": "text", "baseline": "middle", "fontSize": FONT_PX, "aria": False, **look}
    halo = {"stroke": Colour.PAPER, "strokeWidth": 3, "strokeJoin": "round", "opacity": 0.8}
    return (
        [layer(values, mark | halo, encoding), layer(values, mark | {"color": Colour.INK}, encoding)] if values else []
    )
