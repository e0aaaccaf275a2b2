"""Draw the progress of a night: every attempt, the best so far, revocations, and the honest gain at dawn."""

from collections.abc import Sequence

from agent.experiment import Attempt, Status
from agent.records.record import Record
from agent.records.summary import summary_of
from agent.text import budget, counted, one_line
from agent.view.charts.style import (
    PHONE_PX,
    TICK,
    Colour,
    Spec,
    Symbol,
    chart,
    domain_of,
    dots,
    drawn_as,
    layer,
    lines,
    outcomes,
    plot_px,
    quantity,
    said,
    symbol,
    text_layers,
    thinned,
)
from agent.view.course import Course, progress

MOST_KEPT, MOST_REST = 200, 300  # dots of attempts that were kept once, and of the others
APART = 0.06  # of the night: kept edits that lie closer have one number beside their dots, that of the larger gain
MOST_TITLES = 6  # in a picture that stands alone
SILENT = {"aria": False}  # what another mark says already
DESCRIBED = {"description": {"field": "label"}}


def progress_chart(night: Record, width: int, *, titled: bool = False) -> Spec:
    """Draw the progress of a night; titled: with its name, for a picture that stands alone."""
    course = progress(night)
    shown = [one for one in night.attempts if one.is_idea or one.status == Status.KEEP]  # not dawn's questions
    last = max([1, *(attempt.number for attempt in shown)])
    # scores that the staircase begins and ends with, and those of the honest gain
    ends = [step.mean_bpb for step in (*course.staircase[:1], *course.staircase[-1:])]
    honest = night.findings.honest if night.findings is not None else None
    more = [*ends, *(ends[0] - bpb for bpb in (honest.low_bpb, honest.high_bpb))] if honest and ends else ends
    y = quantity("bpb", domain_of(night, lambda one: [] if one.val_bpb is None else [one.val_bpb], *more), tickCount=6)
    x = quantity("n", [-0.02 * last, last * (1.08 if honest else 1.02)], title="attempt", grid=False, format=",d")
    x["axis"]["tickMinStep"] = 1

    once = [one for one in shown if symbol(one) in (Symbol.KEPT, Symbol.REVOKED)]
    rest = [one for one in shown if symbol(one) not in (Symbol.KEPT, Symbol.REVOKED)]
    most = MOST_REST if width >= PHONE_PX else MOST_REST // 3
    few, few_rest = thinned(once, MOST_KEPT), thinned(rest, most)
    top = y["scale"]["domain"][1]
    symbols = {drawn_as(one, one.val_bpb, top) for one in shown}
    if course.staircase:
        is_noisy = any(step.low_bpb < step.high_bpb for step in course.staircase)
        symbols.add(Symbol.BEST_IN_NOISE if is_noisy else Symbol.BEST)
    symbols |= {Symbol.HONEST} if honest and ends else set()
    named = _named(night)
    size = 46 if last < 100 else 26 if last < 1000 else 18
    places = [(one, one.number, one.val_bpb) for one in (*few_rest, *few)]
    layers = [
        *_staircase(course, last, x, y),
        *_revocations(night, course, x, y),
        *_numbers(named, x, y),  # below the dots, none of which a number may hide
        dots(places, x, y, outcomes(symbols, width), size),
        *(_honest_gain(night, ends[0], 1.05 * last, x, y) if ends else []),
        *(_titles(named, plot_px(width)) if titled else []),
    ]
    words = [*_result(night, course), *said(few, once, "kept attempts"), *said(few_rest, rest, "other attempts")]
    plot, height = plot_px(width), 300 if width >= PHONE_PX else 260
    spec = chart(
        [{"width": plot, "height": height, "layer": layers}],
        f"Progress: the val_bpb of every attempt. {', '.join(words)}.",
        words,
        width,
    )
    if titled:
        name = one_line(f"{night.tag} · {budget(night.budget_s)} · {night.device}", 120)
        head = {"text": name, "subtitle": lines(words, width), "fontSize": 13, "fontWeight": "bold"}
        spec["title"] = {**head, "color": Colour.INK, "limit": width}
    return spec


def _staircase(course: Course, last: int, x: Spec, y: Spec) -> list[Spec]:
    """Draw the incumbent after each attempt as a line, with the noise of its score as a band."""
    values: list[dict[str, float]] = []
    for step in course.staircase:
        level = {"bpb": step.mean_bpb, "low": step.low_bpb, "high": step.high_bpb}
        if not values or any(values[-1][name] != bpb for name, bpb in level.items()):
            values.append({"n": step.number, **level})
    if not values:
        return []
    label = f"best so far: {values[0]['bpb']:.6f} bpb at first, {values[-1]['bpb']:.6f} at the end"
    values.append(values[-1] | {"n": last})
    look = {"color": Colour.KEPT, "interpolate": "step-after"}
    band = {"type": "area", "opacity": 0.14, **look, **SILENT}
    line = {"type": "line", "strokeWidth": 1.75, "description": label, **look}
    low_to_high = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    return [layer(values, band, low_to_high), layer(values, line, {"x": x, "y": y})]


def _revocations(night: Record, course: Course, x: Spec, y: Spec) -> list[Spec]:
    """Draw how long each revoked attempt was kept, as a line that begins at it."""
    values = [
        {
            "n": number,
            "bpb": attempt.val_bpb,
            "until": after,
            "label": f"attempt {number} was kept until attempt {after}, then revoked",
        }
        for number, after in course.revocations
        if (attempt := night.attempt(number)) is not None and attempt.val_bpb is not None
    ]
    look = {"stroke": Colour.REVOKED, "strokeWidth": 2.5}
    end = {"type": "point", "shape": TICK, "size": 46, **look, **SILENT}
    held = {"x": x, "x2": {"field": "until"}, "y": y, **DESCRIBED}
    rules = layer(values, {"type": "rule", **look}, held)
    return [rules, layer(values, end, {"x": x | {"field": "until"}, "y": y})] if values else []


def _honest_gain(night: Record, first_bpb: float, at: float, x: Spec, y: Spec) -> list[Spec]:
    """Draw the honest gain below the first score, right of the last attempt."""
    gain = night.findings.honest if night.findings is not None else None
    if gain is None:
        return []
    label = f"honest gain at dawn {gain.mean_bpb:+.6f} bpb, 95 % {gain.low_bpb:+.6f} to {gain.high_bpb:+.6f}"
    ends = {"bpb": first_bpb - gain.mean_bpb, "low": first_bpb - gain.high_bpb, "high": first_bpb - gain.low_bpb}
    value = {"n": at, **ends, "label": label}
    look = {"color": Colour.OPEN}
    bar = {"type": "errorbar", "ticks": {"color": Colour.OPEN, "size": 9}, "rule": {"strokeWidth": 1.75}, **look}
    dot = {"type": "point", "shape": "diamond", "filled": True, "size": 60, "opacity": 1, **look}
    span = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    return [layer([value], bar, span), layer([value], dot, {"x": x, "y": y, **DESCRIBED})]


def _named(night: Record) -> list[Attempt]:
    """Return the kept edits that lie apart from each other, the largest gain first."""
    kept = [one for one in night.ideas if one.status == Status.KEEP and one.val_bpb is not None]
    named: list[Attempt] = []
    for attempt in sorted(kept, key=lambda one: -(one.gain_bpb or 0.0)):
        if all(abs(attempt.number - other.number) > APART * len(night.attempts) for other in named):
            named.append(attempt)
    return named


def _numbers(named: Sequence[Attempt], x: Spec, y: Spec) -> list[Spec]:
    """Write the numbers of edits below their dots; "What helped" has their titles."""
    values = [{"n": one.number, "bpb": one.val_bpb, "text": f"#{one.number}"} for one in named]
    return text_layers(values, {"dy": 14}, {"x": x, "y": y})


def _titles(named: Sequence[Attempt], width: int) -> list[Spec]:
    """Write the titles of edits into the upper right corner, which is empty where scores fall."""
    few = sorted(named[:MOST_TITLES], key=lambda attempt: attempt.number)
    place = {"align": "right", "x": width - 4, "limit": 0.6 * width}
    return [
        part
        for at, attempt in enumerate(few)
        for part in text_layers(
            [{"text": one_line(f"#{attempt.number} {attempt.title}", 200)}], {**place, "y": 20 + 16 * at}, {}, rim_px=12
        )
    ]


def _result(night: Record, course: Course) -> list[str]:
    """Say how many edits were kept, from where to where the score went, and the honest gain."""
    now, steps, dawn = summary_of(night), course.staircase, night.findings
    words = [f"{now.kept:,} kept of {counted(now.ideas, 'idea')}"]
    if steps:
        words.append(f"val_bpb {steps[0].mean_bpb:.4f} → {steps[-1].mean_bpb:.4f}, lower is better")
        if dawn is not None and dawn.honest is not None:
            gain = dawn.honest
            words.append(f"honest gain {gain.mean_bpb:.4f} ({gain.low_bpb:.4f} to {gain.high_bpb:.4f})")
    return words
