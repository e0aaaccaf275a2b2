"""Draw the progress of nights: every attempt, the best so far, revocations, and the honest gain at dawn."""

from collections.abc import Sequence

from agent.text import budget, counted
from agent.view.charts.panel import DAWN_PX, Panel, ends_of
from agent.view.charts.parts.frame import Frame
from agent.view.charts.parts.labels import Labelled, placed, sloped
from agent.view.charts.parts.palette import Spec
from agent.view.charts.parts.scatter import Mark, Sheet
from agent.view.charts.parts.style import GUTTER_PX, chart, plot_px
from agent.view.charts.parts.symbols import Symbol, dot, symbol, symbol_channels
from agent.view.charts.parts.thin import apart, said, thinned
from agent.view.charts.parts.words import heading
from agent.view.charts.staircase import honest_gain, revocations, staircase
from agent.view.facts.nouns import NightFacts
from agent.view.facts.overview import overview_of

MOST_KEPT, MOST_REST = 300, 600  # dots of attempts that were kept once, and of the others
MOST_NAMED = 7  # kept edits with a title beside their dot: more of them hide the dots
LEAST_PANEL_PX = 440  # panels of several nights lie side by side where each has so much


def progress_chart(nights: Sequence[NightFacts], width: int, *, titled: bool = True) -> Spec:
    """Draw a panel for each night, each on its own vertical scale."""
    columns = max(1, min(len(nights), width // LEAST_PANEL_PX))
    plot = plot_px(width, columns)
    height = 300 if plot > 420 else 260
    panels = []
    for night in nights:
        frame = Frame.over(ends_of(night), [one.val_bpb for one in night.attempts], height)
        panels.append(Panel.of(night, frame, plot))
    shown = {one for panel in panels for one in _symbols(panel)}
    shown -= {Symbol.BEST} if Symbol.BEST_IN_NOISE in shown else set()
    channels = symbol_channels(shown, width - GUTTER_PX)
    told = len({night.protocol for night in nights}) > 1  # scores of two protocols cannot be compared
    drawn = []
    for panel in panels:
        dots, words = _dots(panel, Sheet(panel.night, len(nights) > 1, panel.frame, channels))
        layers = [*staircase(panel), *revocations(panel), dots, *honest_gain(panel), *_labels(panel)]
        words += [f"protocol {panel.night.protocol}"] if told else []
        title = heading(_title(panel.night) if titled else "", [*_result(panel), *words], plot)
        drawn.append({"width": plot, "height": height, "layer": layers, "title": title})
    results = (f"{panel.night.tag}: {', '.join(_result(panel))}." for panel in panels)
    return chart(drawn, " ".join(["Progress: the val_bpb of every attempt.", *results]), columns)


def _symbols(panel: Panel) -> set[Symbol]:
    shown = {dot(panel.frame, one, one.val_bpb)[0] for one in panel.shown}
    if panel.course.staircase:
        noisy = any(step.low_bpb < step.high_bpb for step in panel.course.staircase)
        shown.add(Symbol.BEST_IN_NOISE if noisy else Symbol.BEST)
        if panel.night.dawn is not None and panel.night.dawn.honest is not None:
            shown.add(Symbol.HONEST)
    return shown


def _dots(panel: Panel, sheet: Sheet) -> tuple[Spec, list[str]]:
    """Return the dots of the attempts, and words for those that are left out."""
    kept, rest = apart(panel.shown, lambda one: symbol(one) in (Symbol.KEPT, Symbol.REVOKED))
    few_kept, few_rest = thinned(kept, MOST_KEPT), thinned(rest, MOST_REST)
    marks = [Mark(one, one.number, one.val_bpb) for one in (*few_rest, *few_kept)]
    words = [*said(few_kept, kept, "kept attempts"), *said(few_rest, rest, "other attempts")]
    return sheet.dots(marks, panel.x, 46 if panel.last < 100 else 26 if panel.last < 1000 else 18), words


def _labels(panel: Panel) -> list[Spec]:
    """Write the titles of the kept edits with the largest gains, where there is room."""
    kept, others = apart(panel.shown, lambda one: symbol(one) is Symbol.KEPT)
    first = sorted(kept, key=lambda one: (one.number > 0, -(one.gain_bpb or 0.0)))
    named, unnamed = first[:MOST_NAMED], first[MOST_NAMED:]
    points = [Labelled(panel.place(one.number, dot(panel.frame, one, one.val_bpb)[1]), one.title) for one in named]
    dots = [
        panel.place(one.number, dot(panel.frame, one, one.val_bpb)[1])
        for one in (*unnamed, *thinned(others, MOST_REST))
    ]
    return sloped(placed(points, dots, panel.width - 2 * DAWN_PX, panel.frame.height))


# ---- in words --------------------------------------------------------------------------------------------------------


def _title(night: NightFacts) -> str:
    return f"{night.tag} · {budget(night.budget_s)} · {night.device}"


def _result(panel: Panel) -> list[str]:
    """Say how many edits were kept, from where to where the score went, and the honest gain."""
    now = overview_of(panel.night)
    words = [f"{now.keep:,} kept of {counted(now.ideas, 'idea')}"]
    steps, dawn = panel.course.staircase, panel.night.dawn
    if steps:
        words.append(f"val_bpb {steps[0].mean_bpb:.4f} → {steps[-1].mean_bpb:.4f}, lower is better")
        if dawn is not None and dawn.honest is not None:
            gain = dawn.honest
            words.append(f"honest gain {gain.mean_bpb:.4f} ({gain.low_bpb:.4f} to {gain.high_bpb:.4f})")
    return words
