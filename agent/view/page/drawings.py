"""The charts of the report, each as a figure: drawn twice, for a wide page and for a phone; the style shows one."""

from collections.abc import Callable, Sequence
from functools import partial
from html import escape

from agent.view.charts.dials import dials_chart
from agent.view.charts.hours import hours_chart, sources_chart
from agent.view.charts.lineage import lineage_chart
from agent.view.charts.parts.palette import Spec
from agent.view.charts.progress import progress_chart
from agent.view.charts.render import png, svg
from agent.view.charts.tradeoffs import tradeoffs_chart
from agent.view.charts.workers import workers_chart
from agent.view.facts.nouns import NightFacts

BROAD_PX, NARROW_PX, PICTURE_PX = (
    820,
    358,
    1000,
)  # between phone and desk, a page shows one of the first two larger or smaller


Draw = Callable[[int], Spec | None]


def progress_part(nights: Sequence[NightFacts]) -> str:
    """Return the progress of nights as HTML; nothing before the first score."""
    if not any(one.val_bpb is not None for night in nights for one in night.attempts):
        return ""
    return _section("Progress", lambda width: progress_chart(nights, width, titled=len(nights) > 1))


def story_parts(night: NightFacts, *, several: bool) -> str:
    """Return the other charts of a night as HTML."""
    sections: dict[str, tuple[Draw, ...]] = {
        "Which edit stands on which": (partial(lineage_chart, night, several=several),),
        "What a score costs": (partial(tradeoffs_chart, night, several=several),),
        "Which dials were turned": (partial(dials_chart, night, several=several),),
        "What each worker did": (partial(workers_chart, night, several=several),),
        "Hours and sources": (partial(hours_chart, night), partial(sources_chart, night)),
    }
    return "".join(_section(title, *draws) for title, draws in sections.items())


def _section(title: str, *draws: Draw) -> str:
    """Return charts below their title; nothing where the facts are too few for them."""
    figures = "".join(map(_figure, draws))
    return f"<section><h2>{escape(title)}</h2>{figures}</section>" if figures else ""


def _figure(draw: Draw) -> str:
    widths = {"broad": BROAD_PX, "narrow": NARROW_PX}
    specs = {name: draw(width) for name, width in widths.items()}
    drawn = [
        f'<div class="{name}">{svg(spec, whole_px=widths[name])}</div>'
        for name, spec in specs.items()
        if spec is not None
    ]
    return f'<figure class="chart">{"".join(drawn)}</figure>' if drawn else ""


def picture(nights: Sequence[NightFacts]) -> bytes:
    """Return a PNG of the nights' progress, to share."""
    return png(progress_chart(nights, PICTURE_PX))
