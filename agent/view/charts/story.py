"""Draw what led to a night's result: the tree of kept edits, what scores cost, the dials, the workers, the hours."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agent.experiment import NOT_BELIEVED, Attempt
from agent.records.record import Record
from agent.records.summary import Share, gain_bpb, summary_of
from agent.script.dials import Value
from agent.text import counted, duration, one_line, percent_sure
from agent.view.charts.style import (
    GAP_PX,
    LINKED,
    PHONE_PX,
    Colour,
    Spec,
    Symbol,
    around,
    chart,
    domain_of,
    dots,
    drawn_as,
    layer,
    link,
    outcomes,
    plot_px,
    quantity,
    said,
    symbol,
    thinned,
)
from agent.view.course import Kept, lineage, with_overtaken
from agent.view.words import load_words
from agent.view.workers import busy_times, in_order, load_of, others_of, stretches

NAMED = {"description": {"field": "label"}}
FAINT_RULE = {"type": "rule", "color": Colour.FAINT, "strokeWidth": 1.25, "aria": False}

# ---- the tree of kept edits ------------------------------------------------------------------------------------------

MOST_ROWS, MOST_LANES = 60, 6
ROW_PX, LANE_PX, BAR_PX = 24, 16, 9


def lineage_chart(night: Record, width: int) -> Spec | None:
    """Draw a row for each kept edit with its gain, joined to its parent; None where the baseline alone was kept."""
    every = lineage(night)
    if len(every) < 2:
        return None
    kept = _largest(every)
    rows = with_overtaken(night, kept)
    known = {attempt.number: attempt for attempt in night.attempts}
    at = {edit.number: row for row, edit in enumerate(rows)}
    lanes = _lanes(rows, _path(night, every))
    y = {**quantity("row", [len(rows) - 0.5, -0.5]), "axis": None}
    tree_px, title_px = LANE_PX * (1 + max(lanes.values())), int((width - 60) * 0.5)
    bars_px = width - tree_px - title_px - 2 * 8 - 18
    values = [
        {
            "row": row,
            "lane": lanes[edit.number],
            "title": one_line(f"#{edit.number} {edit.title}", 200),
            "gain": edit.gain_bpb or 0.0,
            "end": max(0.0, edit.gain_bpb or 0.0),
            "words": _gain_words(edit, known[edit.number]),
            **link(known[edit.number]),
        }
        for row, edit in enumerate(rows)
    ]
    edges = {False: list[Spec](), True: list[Spec]()}
    for edit in rows:
        merged_as = night.merged_as.get(edit.number)
        for other, is_merge in ((edit.parent, False), (merged_as, True)):
            if other is not None and other in at:
                ends = {"lane2": lanes[other], "row2": at[other]}
                edges[is_merge].append({"lane": lanes[edit.number], "row": at[edit.number], **ends})
    x = {**quantity("lane", [-0.5, max(lanes.values()) + 0.5]), "axis": None}
    joined = {"x": x, "y": y, "x2": {"field": "lane2"}, "y2": {"field": "row2"}}
    dashed = {**FAINT_RULE, "color": Colour.KEPT, "strokeDash": [3, 2]}
    point = {"type": "point", "size": 46, "strokeWidth": 1.5, "opacity": 1}
    symbols = {symbol(known[edit.number]) for edit in rows}
    gains = [value["gain"] for value in values]
    low, high = min(0.0, *gains), max(0.0, *gains) or 1.0
    gain = {**quantity("gain", [low, high + 1.1 * (high - low) * 130 / max(bars_px - 130, 50)]), "axis": None}
    colour = {"color": {"field": "outcome", "type": "nominal", "scale": _colours(symbols), "legend": None}}
    bar = {"type": "rule", "strokeWidth": BAR_PX, "opacity": 0.75}
    height = ROW_PX * len(rows)
    text = {"y": y, "text": {"field": "title"}}
    panels: list[Spec] = [
        {
            "width": tree_px,
            "height": height,
            "layer": [
                layer(edges[False], FAINT_RULE, joined),
                layer(edges[True], dashed, joined),
                layer(values, point, {"x": x, "y": y, **outcomes(symbols, width), **LINKED}),
            ],
        },
        {
            "width": title_px,
            "height": height,
            "layer": [layer(values, {"type": "text", "align": "left", "limit": title_px, "aria": False, "x": 0}, text)],
        },
        {
            "width": bars_px,
            "height": height,
            "layer": [
                layer(values, bar, {"x": gain, "x2": {"datum": 0}, "y": y, **colour, **NAMED}),
                layer(
                    values,
                    {"type": "text", "align": "left", "dx": 6, "aria": False},
                    {"x": gain | {"field": "end"}, "y": y, "text": {"field": "words"}},
                ),
            ],
        },
    ]
    words = ["the gain of each kept edit over its parent, and how sure it is"]
    words += said(kept, every, "kept edits, those of the largest gains,")
    words += ["dashed: overtaken, to the one that merges it"] if edges[True] else []
    return chart(panels, f"The tree of kept edits: {', '.join(words)}.", words, width, 3) | {"spacing": 8}


def _colours(symbols: set[Symbol]) -> Spec:
    return {"domain": [one.word for one in symbols], "range": [one.colour for one in symbols]}


def _path(night: Record, every: Sequence[Kept]) -> set[int]:
    """Return the kept ancestors of the best script, and itself."""
    parents, path, at = {edit.number: edit.parent for edit in every}, set[int](), night.incumbent
    while at is not None and at in parents and at not in path:
        path.add(at)
        at = parents[at]
    return path


def _largest(every: Sequence[Kept]) -> list[Kept]:
    """Return the baseline and the edits of the largest gains, each with its nearest ancestor that is shown."""
    ranked = sorted(every[1:], key=lambda edit: -(edit.gain_bpb or 0.0))[: MOST_ROWS - 1]
    shown = {every[0].number, *(edit.number for edit in ranked)}
    parents = {edit.number: edit.parent for edit in every}

    def nearest(number: int | None) -> int | None:
        while number is not None and number not in shown:
            number = parents.get(number)
        return number

    return [replace(edit, parent=nearest(edit.parent)) for edit in every if edit.number in shown]


def _lanes(rows: Sequence[Kept], path: set[int]) -> dict[int, int]:
    """Return the lane of each edit: the first for the best script's ancestors, for others one that is free."""
    at = {edit.number: row for row, edit in enumerate(rows)}
    lanes, taken_to = dict[int, int](), dict[int, int]()  # lane: the last row in which it is taken
    for row, edit in enumerate(rows):
        begins = row if edit.parent is None else at[edit.parent]
        free = (lane for lane in range(1, MOST_LANES) if taken_to.get(lane, -1) <= begins)
        lanes[edit.number] = 0 if edit.number in path else next(free, MOST_LANES)
        taken_to[lanes[edit.number]] = row
    return lanes


def _gain_words(edit: Kept, attempt: Attempt) -> str:
    """Return a gain in digits, with its certainty; the baseline's score."""
    if edit.gain_bpb is None:
        return "" if attempt.val_bpb is None else f"{attempt.val_bpb:.4f} bpb"
    return f"{edit.gain_bpb:+.4f}" + ("" if edit.sure is None else f" · {percent_sure(edit.sure)}")


# ---- what a score costs ----------------------------------------------------------------------------------------------

MOST_DOTS = 80  # in a panel, beside the front; on a phone half as many
Cost = Callable[[Attempt], float | None]
COSTS: Sequence[
    tuple[str, Callable[[Record, Attempt], float | None], str, int]
] = (  # title, number, format of the axis, and 1 where less is better
    ("parameters, fewer is better", lambda _, one: one.params, "~s", 1),
    ("memory in GB, less is better", lambda night, one: night.memory_gb(one), "~g", 1),
    ("tokens a second, more is better", lambda _, one: one.tokens_s, "~s", -1),
)


def tradeoffs_chart(night: Record, width: int) -> Spec | None:
    """Draw a panel for each cost that differs between attempts; None where there is no such cost."""
    scored = [one for one in night.attempts if one.is_idea and one.val_bpb is not None and one.status != "crash"]
    costs = [
        (title, partial(of, night), axis, sign)
        for title, of, axis, sign in COSTS
        if len({of(night, one) for one in scored} - {None}) > 1
    ]
    if not costs:
        return None
    columns = max(1, min(len(costs), width // 250))
    y = quantity("bpb", domain_of(night, lambda one: [] if one.val_bpb is None else [one.val_bpb]), tickCount=6)
    shown = {drawn_as(one, one.val_bpb, y["scale"]["domain"][1]) for one in scored} | {Symbol.FRONT}
    channels = outcomes(shown, width)
    most = MOST_DOTS if width >= PHONE_PX else MOST_DOTS // 2
    panels = [_cost_panel(night, cost, scored, y, channels, plot_px(width, columns), most) for cost in costs]
    words = ["val_bpb, lower is better, against what it takes", "ringed: the best script"]
    words += ["memory and speed by the script's own count"]
    return chart(panels, "val_bpb against its costs, by attempts.", words, width, columns)


def _cost_panel(
    night: Record,
    cost: tuple[str, Cost, str, int],
    scored: Sequence[Attempt],
    y: Spec,
    channels: Spec,
    px: int,
    most: int,
) -> Spec:
    title, of, number_format, sign = cost
    priced = [(one, value) for one in scored if (value := of(one)) is not None]
    best = front(night, lambda one: None if (value := of(one)) is None else sign * value)
    rest = thinned([pair for pair in priced if pair[0].number not in best], most)
    on_front = [pair for pair in priced if pair[0].number in best]
    axis = {"title": title, "grid": False, "format": number_format, "tickCount": px // 70}
    x = around("cost", [value for _, value in priced], **axis)
    line = {"type": "line", "color": Colour.INK, "strokeWidth": 1.25, "description": "the best score for its cost"}
    line["interpolate"] = "step-after" if sign > 0 else "step-before"
    ringed = [{"cost": value, "bpb": one.val_bpb} for one, value in priced if one.number == night.incumbent]
    ring = {"type": "point", "shape": "circle", "size": 170, "color": Colour.INK, "strokeWidth": 1, "aria": False}
    layers = [
        layer([{"cost": value, "bpb": one.val_bpb} for one, value in on_front], line, {"x": x, "y": y}),
        dots([(one, value, one.val_bpb) for one, value in (*rest, *on_front)], x, y, channels, 30),
        layer(ringed, ring, {"x": x, "y": y}),
    ]
    return {"width": px, "height": 220, "layer": layers}


def front(facts: Record, cost: Cost) -> frozenset[int]:
    """Return the attempts that no other beats in both val_bpb and cost; lower is better in both.

    Scores that are not believed, and attempts without a score or a cost, are left out. Of equals, the first counts.
    """
    best, least_bpb = set[int](), math.inf
    for _, val_bpb, number in sorted(
        (price, one.val_bpb, one.number)
        for one in facts.attempts
        if one.val_bpb is not None and one.kind not in NOT_BELIEVED and (price := cost(one)) is not None
    ):
        if val_bpb < least_bpb:
            best.add(number)
            least_bpb = val_bpb
    return frozenset(best)


# ---- the dials -------------------------------------------------------------------------------------------------------

MOST_DIALS, MOST_MOVES = 24, 240
FEW_VALUES, VALUE_CHARS = 4, 14  # as many values are all written; of one that is no number
LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Move:
    """Hold one dial as one attempt moved it, and the change of val_bpb by all that the attempt did."""

    attempt: Attempt
    before: Value
    after: Value
    change: float | None


def dials_chart(night: Record, width: int) -> Spec | None:
    """Draw a panel for each dial that an attempt moved; None where none was moved."""
    known = {attempt.number: attempt for attempt in night.attempts}
    by_dial: dict[str, list[Move]] = {}
    for attempt in night.attempts:
        gain = gain_bpb(attempt, night.parent(attempt))
        for dial, (before, after) in night.turned.get(attempt.number, {}).items() if attempt.is_idea else ():
            by_dial.setdefault(dial, []).append(Move(attempt, before, after, None if gain is None else -gain))
    best = _in_best(night, known)
    every = sorted(by_dial, key=lambda dial: (dial not in best, -len(by_dial[dial]), dial))
    few = every[:MOST_DIALS]
    if not few:
        return None
    moved = {move.attempt.number: move.change for dial in few for move in by_dial[dial] if move.change is not None}
    domain = domain_of(night, lambda one: [moved[one.number]] if one.number in moved else [], 0.0)
    least_px = 125 if width < PHONE_PX else 170
    columns = max(1, min(len(few), (width - 50) // least_px))
    px = (width - 58 - (columns - 1) * 14) // columns - 8
    shown = {drawn_as(move.attempt, move.change, domain[1]) for dial in few for move in by_dial[dial]} | {Symbol.START}
    shown |= {Symbol.IN_BEST} if any(dial in best for dial in few) else set()
    channels, panels = outcomes(shown, width), []
    for at, dial in enumerate(few):
        y = quantity("change", domain, tickCount=4)
        y["axis"] |= {} if at % columns == 0 else {"labels": False, "minExtent": 0, "maxExtent": 0}
        panels.append(_dial_panel(dial, by_dial[dial], best.get(dial), y, channels, px, MOST_MOVES // len(few)))
    words = ["change of val_bpb against the parent", "below the line is better", *said(few, every, "dials")]
    description = f"Where {counted(len(every), 'dial')} were moved: {', '.join(words)}."
    return chart(panels, description, words, width, columns) | {"spacing": 14}


def _in_best(night: Record, known: Mapping[int, Attempt]) -> dict[str, Value]:
    """Return the values of the dials that the best script and its ancestors moved."""
    values: dict[str, Value] = {}
    at = night.incumbent
    while at is not None and at in known:
        values = {dial: after for dial, (_, after) in night.turned.get(at, {}).items()} | values
        at = known[at].parent
    return values


def _dial_panel(
    dial: str,
    moved: Sequence[Move],
    in_best: Value,
    y: Spec,
    channels: Spec,
    px: int,
    most: int,
) -> Spec:
    start = moved[0].before
    marked = [(start, Colour.FAINT, "at the start")]
    marked += [] if in_best is None or in_best == start else [(in_best, Colour.KEPT, "in the best script")]
    values = [*(value for value, _, _ in marked), *(move.after for move in moved)]
    x, is_number = _dial_axis(values, px)
    few = thinned(sorted(moved, key=lambda move: symbol(move.attempt) is Symbol.KEPT), most)

    def shown(value: Value) -> Value:
        return value if is_number else _value_words(value)

    rules = [
        layer(
            [{"value": shown(value)}],
            {
                "type": "rule",
                "color": colour,
                "strokeWidth": 1.25,
                "description": f"{dial} {where}: {_value_words(value)}",
                "strokeDash": [3, 3] if colour is Colour.FAINT else [1, 0],
            },
            {"x": x},
        )
        for value, colour, where in marked
    ]
    zero = layer([{"change": 0}], {**FAINT_RULE, "strokeWidth": 1}, {"y": y})
    places = [(move.attempt, shown(move.after), move.change) for move in few]
    title = {"text": [one_line(dial, 60)], "fontWeight": "bold", "color": Colour.INK, "limit": px}
    size = 30 if len(few) < 50 else 16
    return {"width": px, "height": 112, "title": title, "layer": [zero, *rules, dots(places, x, y, channels, size)]}


def _dial_axis(values: Sequence[Value], px: int) -> tuple[Spec, bool]:
    """Return the channel of a dial's values, and whether it is a scale of numbers."""
    numbers = [
        float(one)
        for one in values
        if isinstance(one, int | float) and not isinstance(one, bool) and abs(one) <= LARGEST
    ]
    axis: Spec = {"title": None, "grid": False, "labelAngle": 0, "labelFlush": True}
    if len(numbers) < len(values):
        scale = {"type": "point", "padding": 0.6}
        return {"field": "value", "type": "nominal", "scale": scale, "sort": None, "axis": axis}, False
    few, largest = sorted(set(numbers)), max(map(abs, numbers))
    axis |= {"values": few} if len(few) <= FEW_VALUES else {"tickCount": px // 48}
    axis["format"] = ".3~s" if largest >= 1000 else ".3~e" if 0 < largest < 0.001 else ".3~r"
    return around("value", numbers, **axis), True


def _value_words(value: Value) -> str:
    return one_line(f"{value:.4g}" if isinstance(value, float) else str(value), VALUE_CHARS)


# ---- the workers -----------------------------------------------------------------------------------------------------

MOST_RUNS = 2000  # bars; of a longer night, the latest runs are drawn
MANY = 24  # rows of more workers are lower


def workers_chart(night: Record, width: int) -> Spec | None:
    """Draw the runs of all workers, without the pauses of the night; None where one worker made them all."""
    names = sorted({run.worker for one in night.attempts for run in one.runs}, key=in_order)
    every = busy_times(night) if len(names) > 1 else []
    if not every:
        return None
    few = sorted(every, key=lambda busy: busy.began_s)[-MOST_RUNS:]
    parts = stretches(few, others_of(night) if len(few) == len(every) else (), night.budget_s, night.calls)

    def at_work_h(when_s: float) -> float:
        return sum(min(max(0.0, when_s - part.began_s), part.length_s) for part in parts) / 3600

    known = {attempt.number: attempt for attempt in night.attempts}
    values = [
        {
            "worker": one_line(busy.worker, 40),
            "began": round(at_work_h(busy.began_s), 5),
            "ended": round(at_work_h(busy.ended_s), 5),
            **link(known[busy.attempt]),
            "label": f"attempt {busy.attempt}, {'at dawn, ' if busy.dawn else ''}seed {busy.seed}, {busy.ending} "
            f"after {duration((busy.ended_s - busy.began_s) / 3600)}",
        }
        for busy in few
    ]
    whole_h = sum(part.length_s for part in parts) / 3600
    x = quantity("began", [0, whole_h], title="hours at work", grid=True, tickCount=width // 90)
    y = {
        "field": "worker",
        "type": "nominal",
        "sort": [one_line(name, 40) for name in names],
        "scale": {"padding": 0.2},
    }
    y["axis"] = {"title": None, "minExtent": 0, "maxExtent": 130, "labelLimit": 120, "labelOverlap": False}
    channels = outcomes({symbol(known[busy.attempt]) for busy in few}, width, bars=True)
    bars = {"type": "bar", "opacity": 0.75, "strokeWidth": 1}
    pauses = [{"began": at_work_h(part.began_s)} for part in parts[1:]]
    panel = {
        "width": width - 8 - 8 - min(130, 7 * max(map(len, names)) + 12),
        "height": {"step": 20 if len(names) <= MANY else 13},
        "layer": [
            layer(pauses, FAINT_RULE, {"x": x}),
            layer(values, bars, {"x": x, "x2": {"field": "ended"}, "y": y, **channels, **LINKED}),
        ],
    }
    words = [counted(len(names), "worker"), *load_words(load_of(night))]
    words += [f"{counted(len(pauses), 'pause')} of the night left out"] if pauses else []
    words += said(few, every, "runs, the latest,")
    return chart([panel], f"What each worker did when: {', '.join(words)}.", words, width)


# ---- hours and sources -----------------------------------------------------------------------------------------------

MOST_SOURCES, MOST_BARS_PX = 12, 620
Bar = tuple[str, float, float, str]  # name, length, the part of it that is coloured, and words


def hours_chart(night: Record, width: int) -> Spec | None:
    """Draw a bar for each thing that took time; None where nothing did."""
    spent = summary_of(night).hours.items()
    whole = sum(length for _, length in spent)
    if whole <= 0:
        return None
    shares = {what: f"{length / whole:.0%}" if length / whole >= 0.005 else "<1%" for what, length in spent}
    rows = [(what, length, length, f"{duration(length)} · {shares[what]}") for what, length in spent if length > 0]
    return chart([_bars(rows, min(width, MOST_BARS_PX) - 100)], f"Where {duration(whole)} went.", (), width)


def sources_chart(night: Record, width: int) -> Spec | None:
    """Draw what each source brought and cost, a panel of bars for each measure that is known; None without a source."""
    sources = summary_of(night).sources
    few = sources[:MOST_SOURCES]
    panels = [(title, [of(one) for one in few]) for title, of in MEASURES]
    panels = [(title, rows) for title, rows in panels if any(length > 0 for _, length, _, _ in rows)]
    if not panels:
        return None
    columns = max(1, min(len(panels), width // 260))
    px = (width - 8 - (columns - 1) * GAP_PX) // columns - 100
    drawn = [_bars(rows, px, title) for title, rows in panels]
    words = said(few, sources, "sources")
    return chart(drawn, f"What {counted(len(sources), 'source')} of ideas brought.", words, width, columns)


def _bars(rows: Sequence[Bar], px: int, title: str = "") -> Spec:
    """Return a panel of horizontal bars, with names to their left and words to their right."""
    values = [
        {"name": one_line(name, 60), "length": length, "part": part, "words": words, "label": f"{name}: {words}"}
        for name, length, part, words in rows
    ]
    domain = [0, 2.2 * max(length for _, length, _, _ in rows)]  # room for the words
    x = {**quantity("length", domain), "axis": None}
    y: Spec = {"field": "name", "type": "nominal", "sort": None}
    y["axis"] = {"title": None, "minExtent": 90, "maxExtent": 90, "labelLimit": 84, "labelColor": Colour.INK}
    bar = {"type": "bar", "size": 11}
    return {
        "width": px,
        "height": {"step": 24},
        **({"title": {"text": [title], "color": Colour.INK, "fontWeight": "bold"}} if title else {}),
        "layer": [
            layer(values, {**bar, "color": Colour.GRID, "aria": False}, {"x": x, "y": y}),
            layer(values, {**bar, "color": Colour.KEPT}, {"x": x | {"field": "part"}, "y": y, **NAMED}),
            layer(
                values,
                {"type": "text", "align": "left", "dx": 8, "aria": False},
                {"x": x, "y": y, "text": {"field": "words"}},
            ),
        ],
    }


def _calls(one: Share) -> Bar:
    failed = f", {one.failures} failed" if one.failures else ""
    return one.source, one.calls, one.calls - one.failures, f"{one.calls}{failed}"


def _tokens(one: Share) -> Bar:
    read, written = one.tokens_in or 0, one.tokens_out or 0
    words = "" if one.tokens_in is None else f"{read:,} in, {written:,} out"
    return one.source, read + written, read + written, words


MEASURES: Sequence[tuple[str, Callable[[Share], Bar]]] = (
    ("kept of ideas", lambda one: (one.source, one.attempts, one.kept, f"{one.kept} of {one.attempts}")),
    ("gain kept, bpb", lambda one: (one.source, one.gain_bpb, one.gain_bpb, f"{one.gain_bpb:.4f}")),
    ("time", lambda one: (one.source, one.hours, one.hours, duration(one.hours))),
    ("calls of a model", _calls),
    ("tokens", _tokens),
    ("US dollars", lambda one: (one.source, one.usd or 0.0, one.usd or 0.0, f"${one.usd:.2f}" if one.usd else "")),
)
