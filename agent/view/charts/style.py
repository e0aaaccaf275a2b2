"""What all charts share: colours for light and dark paper, the symbol of each outcome, dots, axes and legends.

A chart names a colour by its role. In a page the role is a CSS custom property, so one drawing serves both themes; in a
picture it is a concrete colour. Hues are those of Okabe & Ito (2008), which colour-blind readers can tell apart, with
the lightness that each paper needs. Vega lays out: no width of a text is computed here.
"""

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, TypeVar

from agent.experiment import NOT_BELIEVED, Attempt, Kind, Status
from agent.records.record import Record
from agent.text import harmless, one_line

Spec = dict[str, Any]  # a Vega-Lite specification
T = TypeVar("T")


class Theme(StrEnum):
    LIGHT = "light"
    DARK = "dark"


class Colour(StrEnum):
    """Name the role of a colour, as specifications have it."""

    PAPER = "var(--chart-paper)"
    INK = "var(--chart-ink)"
    FAINT = "var(--chart-faint)"  # of words that matter less
    GRID = "var(--chart-grid)"
    KEPT = "var(--chart-kept)"
    REVOKED = "var(--chart-revoked)"
    DISCARDED = "var(--chart-discarded)"
    CRASHED = "var(--chart-crashed)"
    DOUBTED = "var(--chart-doubted)"
    OPEN = "var(--chart-open)"


COLOURS = {  # role: (on light paper, on dark paper)
    Colour.PAPER: ("#ffffff", "#14171b"),
    Colour.INK: ("#1b1f24", "#e8eaed"),
    Colour.FAINT: ("#57606a", "#a2aab4"),
    Colour.GRID: ("#e6e9ed", "#2a2f36"),
    Colour.KEPT: ("#00805e", "#2fc79a"),
    Colour.REVOKED: ("#a86f00", "#f0b429"),
    Colour.DISCARDED: ("#848c95", "#868e98"),
    Colour.CRASHED: ("#d04a00", "#ff8a3d"),
    Colour.DOUBTED: ("#a8488f", "#e193cb"),
    Colour.OPEN: ("#0072b2", "#5eb1ef"),
}


def colours(theme: Theme) -> dict[Colour, str]:
    """Return the concrete colour of each role."""
    return {role: pair[theme is Theme.DARK] for role, pair in COLOURS.items()}


def css(theme: Theme) -> str:
    """Return the custom properties that a page's style sheet has to set for a theme."""
    return " ".join(f"{role[4:-1]}: {colour};" for role, colour in colours(theme).items())


def painted(part: Any, concrete: Mapping[Colour, str]) -> Any:
    """Return a copy of a specification with concrete colours in the places of their roles, and harmless texts.

    XML has no control characters: with one in a text, a drawing could not be read again.
    """
    if isinstance(part, dict):
        return {name: painted(inner, concrete) for name, inner in part.items()}
    if isinstance(part, list | tuple):
        return [painted(inner, concrete) for inner in part]
    if isinstance(part, Colour):
        return concrete[part]
    return harmless(part) if isinstance(part, str) else part


# ---- the form of a chart ---------------------------------------------------------------------------------------------

GUTTER_PX, RIGHT_PX, GAP_PX = 50, 8, 22  # beside each plot: the labels of its vertical axis; half a label; the next one
FONT_PX = 11
MOST_CHARS = 1000  # of the text that describes a chart to a screen reader
PHONE_PX = 500
CONFIG = {
    "font": "sans-serif",
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": Colour.GRID,
        "labelColor": Colour.FAINT,
        "titleColor": Colour.FAINT,
        "labelFontSize": FONT_PX,
        "titleFontSize": FONT_PX,
        "titleFontWeight": "normal",
        "labelPadding": 6,
        "labelOverlap": True,
    },
    "axisY": {"minExtent": GUTTER_PX, "maxExtent": GUTTER_PX, "labelLimit": GUTTER_PX - 6},
    "legend": {
        "labelColor": Colour.INK,
        "labelFontSize": FONT_PX,
        "labelLimit": 160,
        "symbolOpacity": 1,
        "symbolStrokeWidth": 1.5,
        "symbolSize": 70,
        "offset": 6,
        "columnPadding": 14,
        "orient": "top",
        "title": None,
    },
    "title": {
        "anchor": "start",
        "frame": "group",
        "offset": 8,
        "fontSize": FONT_PX,
        "fontWeight": "normal",
        "color": Colour.FAINT,
        "subtitleColor": Colour.FAINT,
        "subtitleFontSize": FONT_PX,
        "subtitlePadding": 4,
    },
    "text": {"fontSize": FONT_PX, "color": Colour.INK, "baseline": "middle"},
    "view": {"stroke": None},
    "concat": {"spacing": GAP_PX},
}


def chart(panels: Sequence[Spec], description: str, words: Sequence[str], width: int, columns: int = 1) -> Spec:
    """Put panels side by side into one specification, with the style of all charts and a line of words above them."""
    body: Spec = dict(panels[0]) if len(panels) == 1 else {"concat": list(panels), "columns": columns}
    title = {"title": {"text": lines(words, width), "limit": width} | body.get("title", {})} if words else {}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **body,
        **title,
        "description": one_line(description, MOST_CHARS),
        "config": CONFIG,
        "padding": 4,
    }


def lines(words: Sequence[str], width: int) -> list[str]:
    """Return phrases as one line, or as one each where the drawing is for a phone."""
    return list(words) if width < PHONE_PX else [" · ".join(words)]


def plot_px(width: int, columns: int = 1) -> int:
    """Return the width of each panel's plot where panels of a chart lie side by side in columns."""
    beside = columns * (GUTTER_PX + RIGHT_PX) + (columns - 1) * GAP_PX + 8
    return max(80, (width - beside) // columns)


def layer(values: Sequence[Mapping[str, Any]], mark: str | Spec, encoding: Spec) -> Spec:
    """Return marks of one kind with their data."""
    return {"data": {"values": list(values)}, "mark": mark, "encoding": encoding}


def text_layers(values: Sequence[Mapping[str, Any]], mark: Spec, encoding: Spec, rim_px: int = 4) -> list[Spec]:
    """Return the field `text` as words on a rim of paper, so that they can be read over lines and dots."""
    words = {"type": "text", "aria": False, **mark}
    rim = {**words, "stroke": Colour.PAPER, "strokeWidth": rim_px, "strokeJoin": "round", "color": Colour.PAPER}
    return [layer(values, look, {**encoding, "text": {"field": "text"}}) for look in (rim, words)] if values else []


def quantity(field: str, domain: Sequence[float], **axis: Any) -> Spec:
    """Return the channel of a field of numbers on a scale from one number to another; outliers lie at its ends."""
    scale = {"domain": list(domain), "nice": False, "zero": False, "clamp": True}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": {"title": None, **axis}}


def around(field: str, numbers: Sequence[float], **axis: Any) -> Spec:
    """Return the channel of a field on a scale around numbers: logarithmic where positive ones span a decade."""
    low, high = min(numbers), max(numbers)
    is_log = low > 0 and high / low >= 10
    room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
    channel = quantity(field, [low / 1.3, high * 1.3] if is_log else [low - room, high + room], **axis)
    channel["scale"]["type"] = "log" if is_log else "linear"
    return channel


# ---- outcomes --------------------------------------------------------------------------------------------------------

HOLLOW = "transparent"
CROSS = "M-.8,-.8L.8,.8M-.8,.8L.8,-.8"
SLASHED = "M0,-.9A.9,.9,0,1,1,0,.9A.9,.9,0,1,1,0,-.9ZM-.9,.9L.9,-.9"
TEE = "M-.8,-.7L.8,-.7M0,-.7L0,.8"
TICK = "M0,-.9L0,.9"
LINE, BEAM = "M-1.4,0L1.4,0", "M0,-1L0,1M-.5,-1L.5,-1M-.5,1L.5,1"  # in a legend
TAKEN_BACK = frozenset({Kind.REVOKED, Kind.PASSENGER})


class Symbol(Enum):
    """Hold an outcome with its word, colour, shape and filling, in the order of legends."""

    KEPT = "kept", Colour.KEPT, "circle", Colour.KEPT
    REVOKED = "revoked later", Colour.REVOKED, SLASHED, HOLLOW
    OVERTAKEN = "overtaken", Colour.KEPT, "triangle-right", HOLLOW
    DISCARDED = "discarded", Colour.DISCARDED, "circle", HOLLOW
    FAR_OFF = "off the scale", Colour.DISCARDED, "triangle-up", HOLLOW
    DOUBTED = "not believed", Colour.DOUBTED, "diamond", HOLLOW
    UNSCORED = "no score", Colour.DISCARDED, TEE, HOLLOW
    CRASHED = "crashed", Colour.CRASHED, CROSS, HOLLOW
    OPEN = "not decided yet", Colour.OPEN, "square", HOLLOW
    BEST = "best so far", Colour.KEPT, LINE, HOLLOW  # not of an attempt: lines in the legend
    BEST_IN_NOISE = "best so far ± its noise", Colour.KEPT, LINE, HOLLOW
    START = "at the start", Colour.FAINT, TICK, HOLLOW
    IN_BEST = "in the best", Colour.KEPT, TICK, HOLLOW
    FRONT = "best for its cost", Colour.INK, LINE, HOLLOW
    HONEST = "honest gain", Colour.OPEN, BEAM, HOLLOW

    def __init__(self, word: str, colour: Colour, shape: str, fill: str) -> None:
        self.word, self.colour, self.shape, self.fill = word, colour, shape, fill


def symbol(attempt: Attempt) -> Symbol:
    """Return what became of an attempt by its latest decision."""
    if attempt.kind in NOT_BELIEVED:
        return Symbol.DOUBTED
    if attempt.status == Status.KEEP:
        return Symbol.KEPT
    if attempt.status == Status.CRASH:
        return Symbol.CRASHED
    if attempt.status is None:
        return Symbol.OPEN
    if attempt.val_bpb is None:
        return Symbol.UNSCORED
    if attempt.kind == Kind.OVERTAKEN:
        return Symbol.OVERTAKEN
    return Symbol.REVOKED if attempt.kind in TAKEN_BACK or attempt.was_kept else Symbol.DISCARDED


def outcomes(shown: Collection[Symbol], width: float, *, bars: bool = False) -> Spec:
    """Return the channels that draw the field `outcome`, with a legend as wide as the chart if there is a choice.

    bars: they have no shape, and are hollow where another outcome has the same colour.
    """
    order = [one for one in Symbol if one in shown]
    legend = {"columns": max(1, min(len(order), int(width // 130)))} if len(order) > 1 else None

    def channel(values: Sequence[object]) -> Spec:
        scale = {"domain": [one.word for one in order], "range": list(values)}
        return {"field": "outcome", "type": "nominal", "scale": scale, "legend": legend}

    stroke = channel([one.colour for one in order])
    if bars:
        hollow = {Symbol.OVERTAKEN, Symbol.UNSCORED}
        return {"stroke": stroke, "fill": channel([HOLLOW if one in hollow else one.colour for one in order])}
    fill, shape = channel([one.fill for one in order]), channel([one.shape for one in order])
    return {"stroke": stroke, "fill": fill, "shape": shape}


def link(attempt: Attempt, what: Symbol | None = None) -> Spec:
    """Return the fields of a mark that leads to an attempt's row: its outcome, its link and its name.

    The page's tooltip adds what the row says.
    """
    word, number = (what or symbol(attempt)).word, attempt.number
    return {"outcome": word, "href": f"#attempt-{number}", "label": f"attempt {number}, {word}"}


LINKED = {"href": {"field": "href"}, "description": {"field": "label"}}
Place = tuple[Attempt, Any, float | None]  # an attempt, its place on the horizontal axis, and its score or gain


def dots(places: Iterable[Place], x: Spec, y: Spec, channels: Spec, size: int) -> Spec:
    """Return the layer of attempts as dots; one without a score lies at the upper edge."""
    top = y["scale"]["domain"][1]
    values = [
        {
            x["field"]: at,
            y["field"]: top if bpb is None else round(bpb, 6),
            **link(attempt, drawn_as(attempt, bpb, top)),
        }
        for attempt, at, bpb in places
    ]
    mark = {"type": "point", "size": size, "strokeWidth": 1.5, "opacity": 1}
    return layer(values, mark, {"x": x, "y": y, **channels, **LINKED})


def drawn_as(attempt: Attempt, bpb: float | None, top_bpb: float) -> Symbol:
    """Return the symbol of an attempt on a scale that ends at a score."""
    what = symbol(attempt)
    return Symbol.FAR_OFF if what is Symbol.DISCARDED and bpb is not None and bpb > top_bpb else what


# ---- scales ----------------------------------------------------------------------------------------------------------

OF_NOISE = 4  # times one run's standard deviation: the least stretch worth showing
ROOM = 0.08  # of the scale, free at both ends


def domain_of(night: Record, scores: Callable[[Attempt], Iterable[float]], *more: float) -> list[float]:
    """Return the ends of a scale of scores on which far-off attempts do not flatten the rest.

    All kept attempts are shown, and others as far from them as the kept ones lie apart, or as their noise reaches.
    more: scores that are shown in any case.
    """
    kept, rest = list(more), list[float]()
    for attempt in night.attempts:
        if attempt.is_idea and symbol(attempt) not in (Symbol.DOUBTED, Symbol.CRASHED):
            (kept if symbol(attempt) is Symbol.KEPT else rest).extend(scores(attempt))
    if not kept and not rest:
        return [0.0, 1.0]
    low, high = min(kept or rest), max(kept or rest)
    reach = max(high - low, OF_NOISE * (night.sigma_bpb or 0.0)) if kept else 0.0
    if reach == 0.0:
        reach = 2 * statistics.median(abs(bpb - low) for bpb in rest) if rest else 0.0
    near = [bpb for bpb in rest if low - reach <= bpb <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    room = ROOM * (high - low) or 0.005  # of a single score
    return [low - room, high + room]


# ---- thinning --------------------------------------------------------------------------------------------------------


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the items, evenly spread."""
    return [items[at * len(items) // most] for at in range(most)] if len(items) > most else list(items)


def said(shown: Collection[object], there: Collection[object], words: str) -> list[str]:
    """Say that only some of the items are shown; say nothing where all are."""
    return [f"{len(shown):,} of {len(there):,} {words} are shown"] if len(shown) < len(there) else []
