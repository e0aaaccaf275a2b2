"""Draw a night as Vega-Lite charts, which Vega lays out, and render them without a browser and without a network.

A chart names colours as the page's style sheet does, so that one drawing serves light and dark. In a picture that
stands alone they are those of light paper. Every word of a night is one harmless line before it enters a specification.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

import vl_convert
from markupsafe import Markup

from agent.experiment import NOT_BELIEVED, Attempt, Kind, Status
from agent.records.record import Record
from agent.records.summary import Scored, kept_gains_bpb, lower_bpb, summary_of
from agent.script.dials import Value
from agent.text import budget, counted, is_finite, one_line
from agent.view.words import Form

VEGA_LITE = "6.4"
Spec = dict[str, Any]  # a Vega-Lite specification, or a part of one
SIZES = {"broad": {"width": 820, "height": 300}, "narrow": {"width": 358, "height": 260}}  # the page shows one of both
DIAL, PICTURE = {"width": 175, "height": 150}, {"width": 1000, "height": 440, "padding": 12}
MOST_DOTS, MOST_PANEL_DOTS, MOST_DIALS = 300, 100, 24  # a longer night is thinned, and says so
LANE = 0.12  # share of a chart's height, above the scale, for attempts without a score
FEW = 5  # attempts; with fewer, the band of an interval would fill the picture
MARGIN = 0.5  # empty space beside the first and the last attempt, in attempts
MOST_TITLES = 6  # most kept edits with a title, in a picture of its own


@dataclass(frozen=True, slots=True)
class Chart:
    """A section of charts: words, legend and drawings, each in one form or in one for each width."""

    title: str
    words: list[str]
    symbols: list["Symbol"]
    drawings: list[dict[str, Markup]]  # class of the style sheet → drawing


class Symbol(Enum):
    """An outcome's word, colour and shape (a path between -1 and 1), in the order of legends."""

    KEPT = "kept", "kept", "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z"
    REVOKED = "revoked later", "revoked", "M0,-.9A.9,.9,0,1,1,0,.9A.9,.9,0,1,1,0,-.9ZM-.9,.9L.9,-.9"
    OVERTAKEN = "overtaken", "kept", "M-.7,-.9L.9,0L-.7,.9Z"
    DISCARDED = "discarded", "discarded", "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z"
    FAR_OFF = "off the scale", "discarded", "M0,-.9L.9,.7L-.9,.7Z"
    DOUBTED = "not believed", "doubted", "M0,-1L1,0L0,1L-1,0Z"
    UNSCORED = "no score", "discarded", "M-.8,-.7L.8,-.7M0,-.7L0,.8"
    CRASHED = "crashed", "crashed", "M-.8,-.8L.8,.8M-.8,.8L.8,-.8"
    OPEN = "not decided yet", "open", "M-.8,-.8L.8,-.8L.8,.8L-.8,.8Z"
    BEST = "best so far, with its 95 % interval", "kept", "M-1,0L1,0"  # this one and those below stand for no attempt
    HONEST = "honest gain", "open", "M0,-1L0,1M-.5,-1L.5,-1M-.5,1L.5,1"
    START = "at the start", "soft", "M0,-1L0,-.3M0,.3L0,1"
    IN_BEST = "in the best script", "kept", "M0,-1L0,1"

    def __init__(self, word: str, colour: str, shape: str) -> None:
        self.word, self.colour, self.shape = word, f"var(--{colour})", shape
        self.fill = self.colour if word == "kept" else "transparent"


def symbol_of(attempt: Attempt, score: float | None = None, top: float = math.inf) -> Symbol:
    """Return what became of an attempt by its latest decision; score: its place on a scale that ends at the top."""
    if attempt.kind in NOT_BELIEVED:
        return Symbol.DOUBTED
    if attempt.status is None:
        return Symbol.OPEN
    if attempt.status != Status.DISCARD:
        return Symbol.KEPT if attempt.status == Status.KEEP else Symbol.CRASHED
    if attempt.val_bpb is None:
        return Symbol.UNSCORED
    if attempt.kind == Kind.OVERTAKEN:
        return Symbol.OVERTAKEN
    if attempt.kind == Kind.REVOKED or attempt.was_kept:
        return Symbol.REVOKED
    return Symbol.FAR_OFF if score is not None and score > top else Symbol.DISCARDED


# ---- rendering -------------------------------------------------------------------------------------------------------

NEEDLESS = re.compile(r' (?:class|role|aria-roledescription)="[^"]*"| opacity="1"|<path[^<>]* d=""[^<>]*/>')
PLACE, LONG_NUMBER = re.compile(r' (?:d|transform)="[^"]*"'), re.compile(r"(\.\d)\d+")
LINK = re.compile(r'<a xlink:href="[^"#]*(#attempt-\d+)"><path( aria-label="[^"]*")')
SIZE = re.compile(r' width="\d+" height="\d+"')


def svg(spec: Spec, size: Spec) -> Markup:
    """Return a drawing for a page: with its colours and its width, with links in the page, without needless parts."""
    drawn = NEEDLESS.sub("", _rendered(spec | size))
    drawn = PLACE.sub(lambda place: LONG_NUMBER.sub(r"\1", place[0]), drawn)
    name = f' role="group" aria-label="{escape(spec["description"])}"'
    return Markup(SIZE.sub(lambda _: name, LINK.sub(r'<a href="\1"\2><path', drawn), count=1))


def png(spec: Spec) -> bytes:
    """Return a picture on light paper, of two pixels for each of its units."""
    colours = dict(reversed(re.findall(r"--(\w+): (#\w+)", file("page.css"))))  # light ones come first
    drawn = re.sub(r"var\(--(\w+)\)", lambda role: colours[role[1]], _rendered(spec | {"background": "var(--paper)"}))
    return vl_convert.svg_to_png(drawn, scale=2.0)


def _rendered(spec: Spec) -> str:
    return _laid_out(json.dumps(_forms()["style"] | spec))


@lru_cache(64)
def _laid_out(spec: str) -> str:
    """Return a drawing as SVG, once for each: a served page is drawn often, while few of its charts change."""
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])


# ---- parts of charts -------------------------------------------------------------------------------------------------


def file(name: str) -> str:
    """Return a file of web/, which holds what the page is made of."""
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


def _forms() -> Spec:
    """Return the forms of drawings, as Vega-Lite has them."""
    forms: Spec = json.loads(file("charts.json"))
    return forms


def drawing(form: str, attempts: Spec, ends: tuple[float, float], data: Mapping[str, Any], **named: Any) -> Spec:
    """Return a drawing of this form, its attempts on top.

    ends: of the scale of scores. data: by name. named: the values of its expressions.
    """
    spec: Spec = _forms()[form]
    spec["layer"][-1]["layer"].append(attempts)
    (bottom, top), is_scored = ends, [value["y"] <= ends[1] for value in attempts["data"]["values"]]
    lane = {"y": top, "end": top + LANE * (top - bottom)}
    named |= {"bottom": bottom, "top": top, "ceiling": top if all(is_scored) else lane["end"]}
    return spec | {
        "datasets": {**data, "lane": [] if all(is_scored) else [lane]},
        "params": [{"name": name, "value": value} for name, value in named.items()],
    }


def scores(
    night: Record, of: Callable[[Attempt], float | None], *more: float, within: Iterable[float] = ()
) -> tuple[float, float]:
    """Return the ends of a scale of scores on which far-off attempts do not flatten the rest.

    All kept attempts are on it, and others as far from them as the kept ones lie apart, or as noise reaches.
    more: scores that are shown in any case. within: others, from which no distance to the far-off ones is taken.
    """
    believed = [
        attempt
        for attempt in night.attempts
        if attempt.is_idea and symbol_of(attempt) not in (Symbol.DOUBTED, Symbol.CRASHED)
    ]
    pairs = [(score, attempt.status == Status.KEEP) for attempt in believed if (score := of(attempt)) is not None]
    kept = [*more, *(score for score, is_kept in pairs if is_kept)] or [score for score, _ in pairs] or [0.0, 1.0]
    low, high = min(kept), max(kept)
    reach = max(high - low, 4 * (night.sigma_bpb or 0.0)) or math.inf
    near = [*kept, *within, *(score for score, _ in pairs if low - reach <= score <= high + reach)]
    room = 0.08 * (max(near) - min(near)) or 0.005
    return min(near) - room, max(near) + room


def dots(
    places: Iterable[tuple[Attempt, Any, float | None]], ends: tuple[float, float], *more: Symbol, legend: bool = False
) -> tuple[Spec, list[Symbol]]:
    """Return attempts as dots at their places, and the symbols of a legend: those of the dots, and more.

    A dot leads to the row of its attempt. Without a score it lies in a lane above the scale, which ends there.
    """
    values, (bottom, top) = [], ends
    lane = top + LANE / 2 * (top - bottom)
    for attempt, x, score in places:
        word = symbol_of(attempt, score, top).word
        link = {"href": f"#attempt-{attempt.number}", "label": f"attempt {attempt.number}, {word}", "outcome": word}
        values.append({"x": x, "y": lane if score is None else min(score, top), **link})
    words = {value["outcome"] for value in values}
    shown = [symbol for symbol in Symbol if symbol.word in words or symbol in more]
    spec: Spec = _forms()["attempts"] | {"data": {"values": values}}
    for channel, trait in (("stroke", "colour"), ("fill", "fill"), ("shape", "shape")):
        scale = {"domain": [symbol.word for symbol in shown], "range": [getattr(symbol, trait) for symbol in shown]}
        spec["encoding"][channel] = {"field": "outcome", "scale": scale, "legend": {} if legend else None}
    return spec, shown


def evenly_spread(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many of the items, evenly spread."""
    return [items[at * len(items) // most] for at in range(most)] if len(items) > most else list(items)


def thinned_words(shown: int, there: int, noun: str) -> list[str]:
    return [f"{shown:,} of {there:,} {noun} are shown"] if shown < there else []


# ---- progress --------------------------------------------------------------------------------------------------------


def progress_of(night: Record) -> Chart | None:
    """Draw every attempt, the best so far, revocations, and the honest gain, confirmed; None without a score."""
    if all(attempt.val_bpb is None for attempt in night.attempts):
        return None
    spec, words, symbols = progress_spec(night)
    return Chart("Progress", words, symbols, [{name: svg(spec, size) for name, size in SIZES.items()}])


def picture(night: Record) -> bytes:
    """Return a PNG of a night's progress that stands alone: with its name, a legend, and titles below."""
    spec, words, _ = progress_spec(night, legend=True)
    name = one_line(f"{night.tag} · {budget(night.budget_s)} · {night.device}", 120)
    titles = [one_line(f"#{attempt.number} {attempt.title}", 160) for attempt in largest_kept(night)[:MOST_TITLES]]
    below = {"title": ["attempt", "", *titles], "titleLimit": 1000, "titleAnchor": "start", "titleAlign": "left"}
    spec["encoding"]["x"]["axis"] |= below
    return png(spec | PICTURE | {"title": {"text": name, "subtitle": " · ".join(words)}})


def progress_spec(night: Record, *, legend: bool = False) -> tuple[Spec, list[str], list[Symbol]]:
    """Return the progress of a night, what it says in words, and the symbols in it."""
    shown = [attempt for attempt in night.attempts if attempt.is_idea or attempt.status == Status.KEEP]
    last = max([1, *(attempt.number for attempt in shown)])
    stairs, honest = staircase(night, last), night.findings.honest if night.findings else None
    form, sign = Form.of(night.night, is_page=True), night.night.sign
    beams = list[Spec]()
    if stairs and honest:  # the free place: below the first score, right of the last attempt
        low, y, high = (stairs[0]["y"] - gain for gain in (honest.high_bpb, honest.mean_bpb, honest.low_bpb))
        label = f"honest gain, confirmed {form.interval(honest)}"
        beams.append({"x": 1.05 * last, "y": y, "low": low, "high": high, "label": label})
    intervals = [[row[name] for row in rows for name in ("low", "high")] for rows in (beams, stairs)]
    places = [*intervals[0], *(row["y"] for row in stairs)]
    ends = scores(night, lambda attempt: attempt.val_bpb, *places, within=intervals[1])
    ever_kept, others = ([attempt for attempt in shown if attempt.was_kept is kept] for kept in (True, False))
    few = evenly_spread(others, MOST_DOTS)
    attempts, symbols = dots(
        [(attempt, attempt.number, attempt.val_bpb) for attempt in (*few, *ever_kept)],
        ends,
        *([Symbol.BEST] if stairs else []),
        *([Symbol.HONEST] if beams else []),
        legend=legend,
    )
    now = summary_of(night)
    words = [f"{now.kept:,} kept of {counted(now.ideas, 'idea')}"]
    if stairs:
        first, best = (form.number(sign * stairs[at]["y"]) for at in (0, -1))
        words.append(f"{night.night.metric} {first} → {best}, {night.night.better} is better")
    words += [f"honest gain {form.interval(honest)}"] if beams and honest else []
    words += thinned_words(len(few), len(others), "other attempts")
    largest = [attempt.number for attempt in largest_kept(night)[: 2 * MOST_TITLES]]  # Vega skips titles without room
    spec = drawing(
        "progress",
        attempts,
        ends,
        {
            "best": stairs,
            "band": [] if last < FEW else stairs,
            "whiskers": stairs[:-1] if last < FEW else [],
            "honest": beams,
            "largest": [{"x": 0}] if largest else [],
        },
        sign=sign,
        left=-max(0.02 * last, MARGIN),
        right=max(last * (1.08 if beams else 1.02), last + MARGIN),
        ticks=min(last + 1, 10),
        largest=largest,
        size=46 if last < 100 else 24,
    )
    spec["description"] = f"Progress: the score of every attempt. {', '.join(words)}."
    return spec, words, symbols


def staircase(night: Record, last: int) -> list[Spec]:
    """Return the best so far, with the interval of its score, where it changes and at the end.

    Scores are as they are known by now. A later decision may take a keep back, so a step may go up.
    """
    decided = sorted(
        (decision.id, attempt.number, decision.status) for attempt in night.attempts for decision in attempt.decisions
    )
    kept, best_after, latest = dict[int, None](), dict[int, int | None](), 0
    for _, number, status in decided:
        if status is Status.KEEP:
            kept.setdefault(number)
        else:
            kept.pop(number, None)
        latest = max(latest, number)
        best_after[latest] = next(reversed(kept), None)
    stairs = list[Spec]()
    for best, steps in groupby(best_after.items(), key=lambda step: step[1]):
        if (scored := Scored.of(night, night.attempt(best))) is not None:
            at, _ = next(steps)
            y, low, high = (night.night.sign * value for value in (scored.val_bpb, scored.low_bpb, scored.high_bpb))
            stairs.append({"x": at, "y": y, "low": low, "high": high})
    if not stairs:
        return []
    return [*stairs, stairs[-1] | {"x": last if stairs[-1]["x"] < last else last + MARGIN}]  # a last keep has a width


def largest_kept(night: Record) -> list[Attempt]:
    """Return the kept edits, the largest gain first."""
    gains = kept_gains_bpb(night.attempts)
    return [night.attempts[number] for number in sorted(gains, key=gains.__getitem__, reverse=True)]


# ---- the dials -------------------------------------------------------------------------------------------------------


def dials_of(night: Record) -> Chart | None:
    """Draw, for each dial that an attempt moved, the change of the score by its value; None where none was moved."""
    moves = defaultdict[str, list[tuple[Attempt, Value]]](list)
    first = dict[str, Value]()  # the first value of a dial, which attempt 0 or the best script may lack
    for attempt in night.attempts:
        for dial, (before, after) in night.turned.get(attempt.number, {}).items() if attempt.is_idea else ():
            moves[dial].append((attempt, after))
            first.setdefault(dial, before)
    if not moves:  # a night that has just begun may lack attempt 0
        return None
    start, best = (first | dict(night.attempts[at].outline.dials) for at in (0, night.best_number or 0))

    def change(attempt: Attempt) -> float | None:
        lower = lower_bpb(attempt, night.parent(attempt)) if night.turned.get(attempt.number) else None
        return None if lower is None else -lower

    is_turned = {dial: best[dial] != start[dial] for dial in moves}  # dials that the best script has turned
    dials = sorted(moves, key=lambda dial: (not is_turned[dial], -len(moves[dial]), dial))
    few, drawings, symbols = dials[:MOST_DIALS], [], set[Symbol]()
    ends = scores(night, change, 0.0)
    for dial in few:
        lines = {Symbol.START: start[dial]} | ({Symbol.IN_BEST: best[dial]} if is_turned[dial] else {})
        moved = evenly_spread(moves[dial], max(20, 4 * MOST_PANEL_DOTS // len(few)))
        places = [(attempt, _label(value), change(attempt)) for attempt, value in moved]
        attempts, shown = dots(places, ends, *lines)
        symbols |= set(shown)
        scripts = [
            {"x": _label(value), "colour": symbol.colour, "dash": [3, 3] if symbol is Symbol.START else [1, 0]}
            for symbol, value in lines.items()
        ]
        name = one_line(dial, 60)
        named = {"dial": name, "size": 30, "sign": night.night.sign}
        panel = drawing("dial", attempts, ends, {"scripts": scripts}, **named)
        panel["encoding"]["x"]["scale"]["domain"] = _in_order([*lines.values(), *(value for _, value in moves[dial])])
        drawings.append({"dial": svg(panel | {"description": f"{name}: the change of the score"}, DIAL)})
    words = [
        "the score less that of the parent",
        f"{'below' if night.night.sign > 0 else 'above'} the line is better",
        *thinned_words(len(few), len(dials), "dials"),
    ]
    return Chart("Which dials were turned", words, sorted(symbols, key=list(Symbol).index), drawings)


def _in_order(values: Sequence[Value]) -> list[str]:
    """Return the labels of a dial's values: numbers in their order, and behind them words."""
    in_order = sorted(values, key=lambda value: (not is_finite(value), value if is_finite(value) else 0, str(value)))
    return list(dict.fromkeys(map(_label, in_order)))


def _label(value: Value) -> str:
    return f"{value:.3g}" if is_finite(value) else one_line(str(value), 14)
