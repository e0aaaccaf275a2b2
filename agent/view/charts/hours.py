"""Draw where the hours of a night went, and what each source of ideas brought and cost."""

from collections.abc import Callable, Sequence

from agent.proposers.mix import Share
from agent.text import counted, duration, one_line
from agent.view.charts.parts.bars import Bar, bars
from agent.view.charts.parts.palette import Spec
from agent.view.charts.parts.style import chart
from agent.view.charts.parts.thin import said
from agent.view.charts.parts.words import heading, text_px
from agent.view.facts.nouns import NightFacts
from agent.view.facts.overview import hours

MOST_SOURCES = 12
NAMES_PX, MOST_NAMES_PX, LEAST_PX, GAP_PX = 76, 130, 150, 22
MOST_WIDTH = 620  # of a chart with four bars: longer bars tell nothing further
SIDES_PX = 12  # beside a chart, and for words that are wider than estimated
LEAST_SHARE = 0.005  # that is not written as less than one percent
THOUSAND, MILLION = 1000, 10**6


def hours_chart(night: NightFacts, width: int) -> Spec | None:
    """Draw a bar for each thing that took time; None where nothing did."""
    spent = hours(night)
    whole = sum(length for _, length in spent)
    if whole <= 0:
        return None
    rows = [Bar(what, length, f"{duration(length)} · {_share(length / whole)}") for what, length in spent if length > 0]
    panel = bars("where the time went", rows, min(width, MOST_WIDTH) - SIDES_PX, NAMES_PX)
    return chart([panel], f"Where {duration(whole)} went.")


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= LEAST_SHARE else "<1%"


def sources_chart(night: NightFacts, width: int) -> Spec | None:
    """Draw what each source brought and cost, a panel of bars for each measure that is known; None without a source."""
    few = night.sources[:MOST_SOURCES]
    if not few:
        return None
    panels = [(title, of) for title, of in MEASURES if any(bar.length > 0 for bar in map(of, few))]
    names_px = min(MOST_NAMES_PX, max(text_px(one_line(one.source, 40)) for one in few) + 12)
    columns = max(1, min(len(panels), (width - SIDES_PX) // LEAST_PX))
    plot = (width - SIDES_PX - names_px - (columns - 1) * GAP_PX) // columns
    rooms = [names_px if at % columns == 0 else 0 for at in range(len(panels))]
    drawn = [
        bars(title, list(map(of, few)), plot + room, room) for (title, of), room in zip(panels, rooms, strict=True)
    ]
    spec = chart(drawn, f"What {counted(len(night.sources), 'source')} of ideas brought and cost.", columns)
    words = said(few, night.sources, "sources")
    return spec | ({"title": heading("", words, width - SIDES_PX)} if words else {})


def _attempts(one: Share) -> Bar:
    return Bar(one.source, one.attempts, f"{one.kept} of {one.attempts}", part=one.kept)


def _gain(one: Share) -> Bar:
    return Bar(one.source, one.gain_bpb, f"{one.gain_bpb:.4f}")


def _time(one: Share) -> Bar:
    return Bar(one.source, one.hours, duration(one.hours))


def _calls(one: Share) -> Bar:
    failed = f", {one.failures} failed" if one.failures else ""
    return Bar(one.source, one.calls, f"{one.calls}{failed}", part=one.calls - one.failures)


def _tokens(one: Share) -> Bar:
    read, written = one.tokens_in or 0, one.tokens_out or 0
    cached = f" ({_short(one.tokens_cached)} cached)" if one.tokens_cached else ""
    words = "" if one.tokens_in is None else f"{_short(read)} in{cached}, {_short(written)} out"
    return Bar(one.source, read + written, words)


def _short(number: int) -> str:
    if number >= MILLION:
        return f"{number / MILLION:.1f}M"
    return f"{number / THOUSAND:.0f}k" if number >= 10 * THOUSAND else f"{number:,}"


def _dollars(one: Share) -> Bar:
    return Bar(one.source, one.usd or 0.0, "" if one.usd is None else f"${one.usd:.2f}")


MEASURES: Sequence[tuple[str, Callable[[Share], Bar]]] = (
    ("kept of ideas", _attempts),
    ("gain kept, bpb", _gain),
    ("time", _time),
    ("calls of a model", _calls),
    ("tokens", _tokens),
    ("US dollars", _dollars),
)
