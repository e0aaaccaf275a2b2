"""Draw the tree of the kept edits with their gains: a row for each, the best script's ancestors in one line."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.text import percent_sure
from agent.view.charts.parts.palette import Colour, Spec
from agent.view.charts.parts.style import chart, layer, pixels, words_at
from agent.view.charts.parts.symbols import symbol, symbol_channels
from agent.view.charts.parts.thin import apart, said
from agent.view.charts.parts.words import anchor, fitting, heading, mark_label, text_px
from agent.view.facts.lineage import Kept, lineage, with_overtaken
from agent.view.facts.nouns import AttemptFacts, NightFacts

WHAT = ["kept edits", "the gain of each over its parent, and how sure it is"]
MERGE = "dashed: an edit that was overtaken, to the one that merges it"
MOST_ROWS, MOST_LANES = 60, 6
ROW_PX, LANE_PX, BAR_PX = 24, 16, 9
DIGITS_PX, GAP_PX = 96, 10  # a gain in digits with its certainty; between columns
MOST_BAR_PX, SHARE_OF_TITLES = 260.0, 0.66


@dataclass(frozen=True, slots=True)
class TreeRow:
    """Hold a kept edit with its place in pixels."""

    kept: Kept
    attempt: AttemptFacts
    x: float
    y: float


def lineage_chart(night: NightFacts, width: int, *, several: bool = False) -> Spec | None:
    """Draw the tree of the kept edits; None where the baseline alone was kept."""
    every = lineage(night)
    if len(every) < 2:
        return None
    path = _path(night, every)
    kept = _largest(every, path)
    few = with_overtaken(night, kept)
    rows = _rows(few, path, {one.number: one for one in night.attempts})
    inner, tree_px = width - 8, max(row.x for row in rows) + LANE_PX / 2
    names = [f"#{row.kept.number} {row.kept.title}" for row in rows]
    most_px = (inner - tree_px - DIGITS_PX - 3 * GAP_PX) * SHARE_OF_TITLES
    fitted = [fitting(name, most_px) for name in names]
    bars_from = tree_px + 2 * GAP_PX + max(map(text_px, fitted))
    bars_px = min(MOST_BAR_PX, inner - bars_from - DIGITS_PX - GAP_PX)
    titles = [{"x": tree_px + GAP_PX, "y": row.y, "text": text} for row, text in zip(rows, fitted, strict=True)]
    digits = [{"x": bars_from + bars_px + GAP_PX + DIGITS_PX, "y": row.y, "text": _digits(row)} for row in rows]
    layers = [
        _lines(rows),
        *([_merges(rows)] if len(few) > len(kept) else []),
        _bars(rows, bars_from, bars_px),
        _nodes(night, rows, inner, several=several),
        *words_at(titles, align="left"),
        *words_at(digits, align="right"),
    ]
    words = [*WHAT, *said(kept, every, "of them, those of the largest gains,")]
    words += [MERGE] if len(few) > len(kept) else []
    spec: Spec = {"width": inner, "height": ROW_PX * len(rows), "layer": layers, "title": heading("", words, inner)}
    return chart([spec], f"The tree of {': '.join(WHAT)}.")


def _path(night: NightFacts, every: Sequence[Kept]) -> list[int]:
    """Return the kept ancestors of the best script, and itself."""
    parents = {one.number: one.parent for one in every}
    path: list[int] = []
    at = night.incumbent
    while at is not None and at in parents and at not in path:
        path.append(at)
        at = parents[at]
    return path


def _largest(every: Sequence[Kept], path: Collection[int]) -> list[Kept]:
    """Return the baseline and the edits of the largest gains, each with its nearest ancestor that is shown."""
    if len(every) <= MOST_ROWS:
        return list(every)
    on, off = apart(every[1:], lambda one: one.number in path)
    ranked = [*sorted(on, key=lambda one: -(one.gain_bpb or 0.0)), *sorted(off, key=lambda one: -(one.gain_bpb or 0.0))]
    shown = {every[0].number, *(one.number for one in ranked[: MOST_ROWS - 1])}
    parents = {one.number: one.parent for one in every}

    def nearest(number: int | None) -> int | None:
        while number is not None and number not in shown:
            number = parents.get(number)
        return number

    return [replace(one, parent=nearest(one.parent)) for one in every if one.number in shown]


def _rows(few: Sequence[Kept], path: Collection[int], known: Mapping[int, AttemptFacts]) -> list[TreeRow]:
    lanes = _lanes(few, path, {one.number: known[one.number].merged_as for one in few})
    return [
        TreeRow(one, known[one.number], (lanes[one.number] + 0.5) * LANE_PX, (at + 0.5) * ROW_PX)
        for at, one in enumerate(few)
    ]


def _lanes(few: Sequence[Kept], path: Collection[int], merged_as: Mapping[int, int | None]) -> dict[int, int]:
    """Return the lane of each edit: the first for the best script's ancestors, others as the lines of a git log.

    The lane of an edit that another one merges is taken until then.
    """
    at = {one.number: row for row, one in enumerate(few)}
    heir: dict[int, int] = {}  # off the path: the first child goes on in its parent's lane
    for one in few:
        if one.number not in path and one.parent is not None and one.parent not in path:
            heir.setdefault(one.parent, one.number)
    lanes: dict[int, int] = {}
    taken_to: dict[int, int] = {}  # lane: its last row that is taken
    for one in few:
        if one.number in path:
            lanes[one.number] = 0
        elif one.parent is not None and heir.get(one.parent) == one.number:
            lanes[one.number] = lanes[one.parent]
        else:
            begins = at[one.number] if one.parent is None else at[one.parent]
            last = one.number
            while last in heir:
                last = heir[last]
            lane = next((free for free in range(1, MOST_LANES) if taken_to.get(free, -1) <= begins), MOST_LANES)
            merge = merged_as[last]
            lanes[one.number], taken_to[lane] = lane, at[last] if merge is None else at.get(merge, at[last])
    return lanes


# ---- drawn -----------------------------------------------------------------------------------------------------------


def _lines(rows: Sequence[TreeRow]) -> Spec:
    """Draw a line from each edit to its parent: across at half a row below the parent, then down."""
    at = {row.kept.number: row for row in rows}
    values = []
    for row in rows:
        above = at.get(row.kept.parent) if row.kept.parent is not None else None
        if above is not None:
            turn = above.y + ROW_PX / 2 if above.x != row.x else above.y
            if above.x != row.x:
                values.append({"x": above.x, "y": above.y, "x2": row.x, "y2": turn})
            values.append({"x": row.x, "y": turn, "x2": row.x, "y2": row.y})
    mark = {"type": "rule", "color": Colour.FAINT, "strokeWidth": 1.25, "aria": False}
    return layer(values, mark, {"x": pixels("x"), "x2": {"field": "x2"}, "y": pixels("y"), "y2": {"field": "y2"}})


def _merges(rows: Sequence[TreeRow]) -> Spec:
    """Draw a dashed line from each edit that was overtaken to the one that merges it: down, then across."""
    at = {row.kept.number: row for row in rows}
    values = []
    for row in rows:
        merge = at.get(row.attempt.merged_as) if row.attempt.merged_as is not None else None
        if merge is not None:
            turn = merge.y - ROW_PX / 2
            values.append({"x": row.x, "y": row.y, "x2": row.x, "y2": turn})
            values.append({"x": row.x, "y": turn, "x2": merge.x, "y2": merge.y})
    mark = {"type": "rule", "color": Colour.KEPT, "strokeWidth": 1.25, "strokeDash": [3, 2], "aria": False}
    return layer(values, mark, {"x": pixels("x"), "y": pixels("y"), "x2": {"field": "x2"}, "y2": {"field": "y2"}})


def _bars(rows: Sequence[TreeRow], left: float, width: float) -> Spec:
    """Draw the gains, losses to the left of a common line."""
    gains = [row.kept.gain_bpb or 0.0 for row in rows]
    low, high = min(0.0, *gains), max(0.0, *gains)
    per_bpb = width / ((high - low) or 1.0)
    zero = left - low * per_bpb
    values = [
        {
            "x": round(zero, 1),
            "x2": round(zero + gain * per_bpb, 1),
            "y": row.y - BAR_PX / 2,
            "y2": row.y + BAR_PX / 2,
            "colour": symbol(row.attempt).colour,
            "label": f"gain of attempt {row.kept.number}: {_digits(row)}",
        }
        for row, gain in zip(rows, gains, strict=True)
        if gain
    ]
    encoding = {"x": pixels("x"), "x2": {"field": "x2"}, "y": pixels("y"), "y2": {"field": "y2"}}
    colour = {"color": {"field": "colour", "type": "nominal", "scale": None}, "description": {"field": "label"}}
    return layer(values, {"type": "rect", "opacity": 0.75}, encoding | colour)


def _nodes(night: NightFacts, rows: Sequence[TreeRow], width: float, *, several: bool) -> Spec:
    values = [
        {
            "x": row.x,
            "y": row.y,
            "outcome": symbol(row.attempt).word,
            "href": anchor(night, row.kept.number, several=several),
            "label": mark_label(row.attempt, symbol(row.attempt).word),
        }
        for row in rows
    ]
    channels = symbol_channels({symbol(row.attempt) for row in rows}, width)
    mark = {"type": "point", "size": 46, "strokeWidth": 1.5, "opacity": 1}
    links = {"href": {"field": "href"}, "description": {"field": "label"}}
    return layer(values, mark, {"x": pixels("x"), "y": pixels("y"), **channels, **links})


def _digits(row: TreeRow) -> str:
    """Return a gain in digits, with its certainty; the baseline's score."""
    if row.kept.gain_bpb is None:
        return "" if row.attempt.val_bpb is None else f"{row.attempt.val_bpb:.4f} bpb"
    sure = "" if row.kept.sure is None else f" · {percent_sure(row.kept.sure)}"
    return f"{row.kept.gain_bpb:+.4f}{sure}"
