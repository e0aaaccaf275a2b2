"""Put the report together: one HTML file that needs no network, with its style, its script and its charts inside.

Its Content-Security-Policy names the hashes of the style and of the scripts, and allows nothing else: no other script,
no evaluation of text, no request. So a title cannot become a program, even if a defect let it become HTML.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from agent.clock import utc_now
from agent.experiment import LOCAL, Attempt
from agent.invocation import typed
from agent.proposers.briefing import Curve
from agent.records.record import Record
from agent.records.summary import gain_bpb
from agent.text import duration, one_line, percent_sure
from agent.view import words
from agent.view.charts import story
from agent.view.charts.progress import progress_chart
from agent.view.charts.render import png, svg
from agent.view.charts.style import Spec, Theme, css
from agent.view.page.extras import Extras
from agent.view.page.head import head

BROAD_PX, NARROW_PX = 820, 358  # of the two drawings of each chart; between phone and desk, one is scaled
PICTURE_PX = 1000
TITLE_CHARS, TEXT_CHARS = 2000, 8000
CURVE_PX, STEEP = (480, 200, 40, 22), 0.08  # width, height, left and below; the first losses would flatten the rest
Drawn = tuple[str, list[dict[str, Markup]]]  # a section's title, and its charts for wide and narrow pages


def page(night: Record, extras: Extras | None = None, live: str = "", version: int = 0) -> str:
    """Return the report of a night as HTML.

    live: a further script, which may ask the server that the page came from, and calls `renew(html)` of page.js.
    version: of the night's facts, for that script.
    """
    style = "\n".join(
        [
            f":root {{ {css(Theme.LIGHT)} }}",
            f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css(Theme.DARK)} }} }}",
            file("page.css"),
        ]
    )
    scripts = [file("page.js"), *filter(None, [live])]
    shown = head(night)
    text = (
        templates()
        .get_template("page.html")
        .render(
            night=night,
            head=shown,
            sections=list(_sections(night)),
            rows=[_row(night, attempt, extras or Extras()) for attempt in night.attempts],
            policy=_policy(style, scripts, connect=bool(live)),
            style=Markup(style),
            scripts=list(map(Markup, scripts)),
            written=words.moment(utc_now()),
            version=version,
            program=typed(),
        )
    )
    return text.encode(errors="replace").decode()  # a record's title may hold half a surrogate pair, which no file can


@cache
def templates() -> Environment:
    """Return the templates, which escape all that a night tells."""
    found = Environment(
        loader=FunctionLoader(file), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    found.filters |= {
        "bpb": words.bpb,
        "moment": words.moment,
        "duration": lambda seconds: duration(seconds / 3600),
        "sure": lambda share: words.NONE if share is None else percent_sure(share),
        "line": one_line,
        "cut": lambda text, most=TITLE_CHARS: text if len(text) <= most else f"{text[: most - 1]}…",
    }
    return found


def file(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, scripts: list[str], *, connect: bool) -> str:
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if connect else []),
    ]
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# ---- charts ----------------------------------------------------------------------------------------------------------


def _sections(night: Record) -> Iterator[Drawn]:
    """Yield the sections of charts; the first is the progress, which stands above the table."""
    draws: dict[str, tuple[Callable[[Record, int], Spec | None], ...]] = {
        "Progress": (progress_chart,) if any(one.val_bpb is not None for one in night.attempts) else (),
        "Which edit stands on which": (story.lineage_chart,),
        "What a score costs": (story.tradeoffs_chart,),
        "Which dials were turned": (story.dials_chart,),
        "What each worker did": (story.workers_chart,),
        "Hours and sources": (story.hours_chart, story.sources_chart),
    }
    for title, of in draws.items():
        charts = [chart for draw in of if (chart := _drawn(partial(draw, night)))]
        if charts or title == "Progress":
            yield title, charts


def _drawn(draw: Callable[[int], Spec | None]) -> dict[str, Markup]:
    """Draw a chart for a wide page and for a phone; the style shows one of the two."""
    specs = {"broad": (draw(BROAD_PX), BROAD_PX), "narrow": (draw(NARROW_PX), NARROW_PX)}
    return {name: Markup(svg(spec, whole_px=width)) for name, (spec, width) in specs.items() if spec is not None}


def picture(night: Record) -> bytes:
    """Return a PNG of a night's progress, to share."""
    return png(progress_chart(night, PICTURE_PX, titled=True))


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Hold an attempt as the template shows it."""

    attempt: Attempt
    kind: str  # of the latest decision
    verdict: str
    gain_bpb: float | None
    facts: list[tuple[str, str]]
    diff: list[str]
    losses: "Curves | None"


def _row(night: Record, attempt: Attempt, extras: Extras) -> Row:
    kind = str(attempt.kind or "not decided")
    verdict = attempt.words or kind
    verdict = verdict if verdict.startswith(kind) else f"{kind}: {verdict}"
    mine = extras.curves.get(attempt.number)
    parents = extras.curves.get(attempt.parent) if attempt.parent is not None else None
    return Row(
        attempt=attempt,
        kind=kind,
        verdict=verdict[:1].upper() + verdict[1:] + ("" if verdict[-1] in ".!?…" else "."),
        gain_bpb=gain_bpb(attempt, night.parent(attempt)),
        facts=list(_facts(night, attempt)),
        diff=extras.diffs.get(attempt.number, "").splitlines(),
        losses=curves(mine, parents or ()) if mine else None,
    )


def _facts(night: Record, attempt: Attempt) -> Iterator[tuple[str, str]]:
    """Yield name and value of what is known of an attempt beside its cells."""
    if attempt.val_bpb is not None:
        yield "val_bpb", f"{attempt.val_bpb:.6f}"
    yield "spent", duration(attempt.spent_s / 3600)
    for name, (before, after) in night.turned.get(attempt.number, {}).items():
        yield name, f"{before!r} → {after!r}"
    if attempt.params is not None:
        yield "parameters", f"{attempt.params / 1e6:.2f} M" if attempt.params >= 1e5 else f"{attempt.params:,}"
    if memory_gb := night.memory_gb(attempt):
        yield "memory", words.memory(1024 * memory_gb)
    if attempt.tokens_s is not None:
        yield "speed", f"{attempt.tokens_s:,.0f} tokens/s"
    if (usd := night.usd(attempt)) is not None:
        yield "paid", f"${usd:.2f}"
    workers = {run.worker for run in attempt.runs} - {LOCAL}
    if workers:
        yield "run on", ", ".join(sorted(workers))
    yield "begun", words.moment(attempt.started)
    if attempt.commit:
        yield "commit", attempt.commit[:7]


@dataclass(frozen=True, slots=True)
class Curves:
    """Hold the losses of an attempt, and those of another that it is compared with, as paths of a drawing."""

    mine: str
    others: str
    low: float
    high: float
    last: float
    last_y: float
    others_y: float | None


def curves(mine: Curve, others: Curve) -> Curves:
    """Return the paths of an attempt's losses and of another's, on one scale."""
    width, height, left, bottom = CURVE_PX
    losses = [loss for curve in (mine, others) for at, loss in curve if at >= STEEP] or [mine[-1][1]]
    low, high = min(losses), max(max(losses), min(losses) + 1e-6)
    room = 0.06 * (high - low)

    def y(loss: float) -> float:
        return round(8 + (high + room - loss) / (high - low + 2 * room) * (height - bottom - 8), 1)

    def path(curve: Curve) -> str:
        places = (f"{left + at * (width - left - 60):.0f} {y(loss):.0f}" for at, loss in curve if loss <= high + room)
        return f"M{'L'.join(places)}"

    last_y, others_y = y(mine[-1][1]), y(others[-1][1]) if others else None
    if others_y is not None and abs(others_y - last_y) < 13:  # the two numbers keep apart
        middle, apart = (others_y + last_y) / 2, 7 if last_y >= others_y else -7
        last_y, others_y = middle + apart, middle - apart
    return Curves(path(mine), path(others) if others else "", low, high, mine[-1][1], last_y, others_y)
