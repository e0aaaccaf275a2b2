"""The charts of the report, each as a figure: drawn twice, for a wide page and for a phone; the style shows one."""

from collections.abc import Callable, Sequence
from html import escape

from agent.view.charts.parts.palette import Spec
from agent.view.charts.progress import progress_chart
from agent.view.charts.render import png, svg
from agent.view.charts.tradeoffs import tradeoffs_chart
from agent.view.facts.nouns import NightFacts

BROAD_PX, NARROW_PX, PICTURE_PX = 1040, 358, 1000


def progress_part(nights: Sequence[NightFacts]) -> str:
    """Return the progress of nights as HTML."""
    return _figure("Progress", lambda width: progress_chart(nights, width, titled=len(nights) > 1))


def story_parts(night: NightFacts) -> str:
    """Return the other charts of a night as HTML."""
    return _figure("What a score costs", lambda width: tradeoffs_chart(night, width))


def _figure(title: str, draw: Callable[[int], Spec | None]) -> str:
    """Return a chart with its title; nothing where the facts are too few for it."""
    specs = draw(BROAD_PX), draw(NARROW_PX)
    drawn = [
        f'<div class="{name}">{svg(spec)}</div>'
        for name, spec in zip(("broad", "narrow"), specs, strict=True)
        if spec is not None
    ]
    if not drawn:
        return ""
    return f'<section><h2>{escape(title)}</h2><figure class="chart">{"".join(drawn)}</figure></section>'


def picture(nights: Sequence[NightFacts]) -> bytes:
    """Return a PNG of the nights' progress, to share."""
    return png(progress_chart(nights, PICTURE_PX))
