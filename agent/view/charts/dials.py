"""Draw where each dial was moved and what came of it: one small panel for each dial, with its own scale."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.script.dials import Value
from agent.text import counted, one_line
from agent.view.charts.parts.frame import Frame, stretch
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.scale import Scale
from agent.view.charts.parts.scatter import Mark, Sheet
from agent.view.charts.parts.style import GUTTER_PX, RIGHT_PX, chart, layer
from agent.view.charts.parts.symbols import Symbol, dot, symbol, symbol_channels
from agent.view.charts.parts.thin import apart, said, thinned
from agent.view.charts.parts.words import FONT_PX, heading
from agent.view.facts.moves import Move, moves
from agent.view.facts.nouns import AttemptFacts, NightFacts

MOST_DIALS, MOST_DOTS = 24, 700
PHONE_PX, NARROW_PX, LEAST_PX, HEIGHT_PX, GAP_PX = 500, 125, 160, 112, 14  # of a panel, and between two
TICK_PX, THOUSAND, LARGEST = 48, 1000, 1e300
VALUE_CHARS, FEW = 14, 4  # of a value that is no number; as many values are all written
WHAT = ["change of val_bpb against the parent", "below the line is better"]


@dataclass(frozen=True, slots=True)
class Moved:
    """Hold a dial's moves, with its value at the night's start and in the best script."""

    dial: str
    moves: Sequence[Move]
    start: Value
    best: Value


def dials_chart(night: NightFacts, width: int, *, several: bool = False) -> Spec | None:
    """Draw a panel for each dial that an attempt moved; None where none was moved."""
    known = {one.number: one for one in night.attempts}
    every = _by_dial(night, known)
    dials = every[:MOST_DIALS]
    if not dials:
        return None
    frame = _frame(night, [move for one in dials for move in one.moves], known)
    shown = {dot(frame, known[move.attempt], _change(move))[0] for one in dials for move in one.moves}
    shown |= {Symbol.START, Symbol.IN_BEST} if any(one.best != one.start for one in dials) else {Symbol.START}
    sheet = Sheet(night, several, frame, symbol_channels(shown, width - GUTTER_PX))
    least = NARROW_PX if width < PHONE_PX else LEAST_PX
    columns = max(1, min(len(dials), (width - GUTTER_PX) // (least + GAP_PX)))
    plot = (width - 8 - GUTTER_PX - (columns - 1) * GAP_PX) // columns - RIGHT_PX
    panels = [
        _panel(moved, known, sheet, plot, most=MOST_DOTS // len(dials), labelled=at % columns == 0)
        for at, moved in enumerate(dials)
    ]
    words = [*WHAT, *said(dials, every, "dials")]
    spec = chart(panels, f"Where {counted(len(every), 'dial')} were moved: {', '.join(WHAT)}.", columns)
    return spec | {"title": heading("", words, width - GUTTER_PX), "spacing": GAP_PX}


def _by_dial(night: NightFacts, known: Mapping[int, AttemptFacts]) -> list[Moved]:
    """Return the dials, those with kept moves first, then those that were moved most."""
    found: dict[str, list[Move]] = defaultdict(list)
    for move in moves(night):
        found[move.dial].append(move)
    best = _in_best(night, known)
    dials = [Moved(dial, of, of[0].before, best.get(dial, of[0].before)) for dial, of in found.items()]

    def importance(one: Moved) -> tuple[bool, int, str]:
        return one.best == one.start, -len(one.moves), one.dial

    return sorted(dials, key=importance)


def _in_best(night: NightFacts, known: Mapping[int, AttemptFacts]) -> dict[str, Value]:
    """Return the values of the dials that the best script and its ancestors moved."""
    values: dict[str, Value] = {}
    at = night.incumbent
    while at is not None and at in known:
        values = {dial: after for dial, (_, after) in known[at].dials.items()} | values
        at = known[at].parent
    return values


def _change(move: Move) -> float | None:
    return None if move.gain_bpb is None else -move.gain_bpb


def _frame(night: NightFacts, shown: Sequence[Move], known: Mapping[int, AttemptFacts]) -> Frame:
    kept, rest = [0.0], list[float]()
    for move in shown:
        change, what = _change(move), symbol(known[move.attempt])
        if change is not None and what not in (Symbol.DOUBTED, Symbol.CRASHED):
            (kept if what is Symbol.KEPT else rest).append(change)
    ends = stretch(kept, rest, night.sigma_bpb)
    return Frame.over(ends, [_change(move) for move in shown], HEIGHT_PX)


# ---- a dial's panel --------------------------------------------------------------------------------------------------


def _panel(
    moved: Moved, known: Mapping[int, AttemptFacts], sheet: Sheet, width: float, *, most: int, labelled: bool
) -> Spec:
    """Draw the moves of a dial; the vertical axis has labels in the first panel of a row."""
    pairs = [(move, known[move.attempt]) for move in moved.moves]
    kept, rest = apart(pairs, lambda pair: symbol(pair[1]) is Symbol.KEPT)
    few = [*thinned(rest, most), *thinned(kept, most)]
    values = [moved.start, moved.best, *(move.after for move in moved.moves)]
    x = _axis(values, width)
    shown = (lambda value: value) if x["type"] == "quantitative" else _said
    marks = [Mark(one, shown(move.after), _change(move), (_in_words(move, one),)) for move, one in few]
    dots = sheet.dots(marks, x, 30 if len(few) < 50 else 16)
    y = dots["encoding"]["y"]
    y["axis"] |= {"tickCount": 4} | ({} if labelled else {"labels": False, "minExtent": 0, "maxExtent": 0})
    lines = [_line(shown(value), colour, words, x) for value, colour, words in _values_of(moved)]
    zero = layer([{"bpb": 0}], {"type": "rule", "color": Colour.FAINT, "aria": False}, {"y": y})
    return {
        "width": width,
        "height": HEIGHT_PX,
        "title": heading(moved.dial, said(few, moved.moves, "moves"), width, FONT_PX),
        "layer": [zero, *lines, dots],
    }


def _values_of(moved: Moved) -> list[tuple[Value, Colour, str]]:
    """Return the values that lines mark, each with its colour and words."""
    start = (moved.start, Colour.FAINT, f"{moved.dial} at the start: {_said(moved.start)}")
    best = (moved.best, Colour.KEPT, f"{moved.dial} in the best script: {_said(moved.best)}")
    return [start] if moved.best == moved.start else [start, best]


def _line(value: object, colour: Colour, words: str, x: Spec) -> Spec:
    dash = {"strokeDash": [3, 3]} if colour is Colour.FAINT else {}
    mark = {"type": "rule", "color": colour, "strokeWidth": 1.25, "description": words, **dash}
    return layer([{"value": value}], mark, {"x": x})


def _axis(values: Sequence[Value], width: float) -> Spec:
    """Return the channel of a dial's values: a scale of numbers, or the values themselves where one is no number."""
    numbers = [float(one) for one in values if isinstance(one, int | float) and _is_drawable(one)]
    if len(numbers) < len(values):
        points = {"scale": {"type": "point", "padding": 0.6}, "sort": list(dict.fromkeys(map(_said, values)))}
        axis = {"title": None, "labelAngle": 0, "grid": False, "labelOverlap": True, "labelFlush": True}
        return {"field": "value", "type": "nominal", **points, "axis": axis}
    few = sorted(set(numbers))
    ticks = {"values": few} if len(few) <= FEW else {"tickCount": int(width // TICK_PX)}
    return Scale.around(numbers, width).channel("value", title=None, grid=False, format=_format(few), **ticks)


def _is_drawable(number: float) -> bool:
    return not isinstance(number, bool) and abs(number) <= LARGEST  # False of no number, too


def _format(values: Sequence[float]) -> str:
    """Return the format in which all values are short, as D3 has them: 1.5k, 0.04 or 1e-6."""
    largest = max(map(abs, values))
    return ".3~s" if largest >= THOUSAND else ".3~e" if 0 < largest < 1 / THOUSAND else ".3~r"


def _said(value: Value) -> str:
    words = f"{value:.4g}" if isinstance(value, float) else str(value)
    return one_line(words, VALUE_CHARS)


def _in_words(move: Move, one: AttemptFacts) -> str:
    others = len(one.dials) - 1
    together = f" with {counted(others, 'other dial')}" if others else ""
    return f"{_said(move.before)} → {_said(move.after)}{together}"
