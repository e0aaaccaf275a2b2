"""Put the report together: one HTML file that needs no network, with its style, its script and its charts inside.

Its Content-Security-Policy names the hashes of the style and of the scripts, and allows nothing else: no other script,
no evaluation of text, no request. So a title cannot become a program, even if a defect let it become HTML.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from agent.clock import utc_now
from agent.experiment import Attempt, memory_gb
from agent.invocation import typed
from agent.records.place import Place
from agent.records.record import Record
from agent.records.summary import confirmed_gain, lower_bpb, summary_of
from agent.text import (
    below,
    budget,
    counted,
    diff_lines,
    duration,
    harmless_lines,
    one_line,
    percent_sure,
    shorten,
    two_digits,
)
from agent.view import charts, words
from agent.view.charts import file
from agent.view.run_files import Curve, curve

NEWEST = 100  # attempts whose edits and curves are shown, beside those that were ever kept
POINTS, LINES, LINE_CHARS = 30, 300, 400  # most points of a curve, lines of a diff, and characters of a line
MOST_CHARS = 1_000_000  # most characters in all diffs of a night
TITLE_CHARS = 2000
STEEP = 0.08  # share of the budget: the first, steep losses would flatten the rest of the curve


@dataclass(frozen=True, slots=True)
class Extras:
    """Known edits and training losses, by the attempt's number."""

    diffs: Mapping[int, str] = field(default_factory=dict)
    curves: Mapping[int, Curve] = field(default_factory=dict)  # fraction of the budget, loss


def page(night: Record, extras: Extras | None = None, live: str = "", version: int = 0) -> str:
    """Return the report of a night as HTML.

    live: a further script, which may ask the server that the page came from, and calls `renew(html)` of page.js.
    version: of the night's facts, for that script.
    """
    style, scripts = file("page.css"), [file("page.js"), *filter(None, [live])]
    now = summary_of(night)
    gains = {"in the night": now.gain}
    if night.findings is not None:
        gains |= {"on fresh seeds": night.findings.honest, "on the holdout": night.findings.holdout}
    return template("page.html").render(
        night=night,
        now=now,
        kept=charts.largest_kept(night),
        gains={name: gain for name, gain in gains.items() if gain is not None},
        workers=len({run.worker for attempt in night.attempts for run in attempt.runs}),
        progress=charts.progress_of(night),
        dials=charts.dials_of(night),
        extras=extras or Extras(),
        policy=_policy(style, scripts, connect=bool(live)),
        style=Markup(style),
        scripts=list(map(Markup, scripts)),
        version=version,
    )


def template(name: str) -> Template:
    """Return a template of web/, which escapes all that a night tells, and makes it harmless."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    within = partial(words.interval_words, form=words.bpb)
    environment = Environment(
        loader=FunctionLoader(file), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        finalize=lambda shown: harmless_lines(shown) if type(shown) is str else shown,  # HTML (Markup) stays as it is
    )  # fmt: skip
    environment.filters |= {
        "bpb": words.bpb,
        "within": within,
        "belief": partial(words.belief, form=within),
        "doubt": words.doubt_words,
        "ends": partial(words.ends, form=words.bpb),
        "moment": words.moment,
        "memory": words.memory,
        "lower": partial(lower_bpb, decimals=words.PAGE_DECIMALS),
        "below": partial(below, decimals=words.PAGE_DECIMALS),
        "outcome": words.outcome,
        "two_digits": two_digits,
        "scale": scale,
        "budget": budget,
        "counted": counted,
        "duration": lambda seconds: duration(seconds / 3600),
        "sure": lambda share: words.NONE if share is None else percent_sure(share),
        "line": one_line,
        "cut": lambda text, most=TITLE_CHARS: shorten(text, most),
    }
    environment.globals |= {
        "memory_gb": memory_gb,
        "typed": typed,
        "written": lambda: words.moment(utc_now()),
        "again": confirmed_gain,
        "verdict_on": partial(words.verdict_on, decimals=words.PAGE_DECIMALS),
        "lowest": partial(words.lowest_words, decimals=words.PAGE_DECIMALS),
    }
    return environment


def _policy(style: str, scripts: Sequence[str], *, connect: bool) -> str:
    hashes = f"script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}"
    asks = "; connect-src 'self'" if connect else ""
    return f"default-src 'none'; {hashes}; img-src data:; base-uri 'none'; form-action 'none'{asks}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def scale(mine: Curve, others: Curve) -> tuple[float, float]:
    """Return the lowest and the highest loss that a drawing of these curves shows."""
    losses = [loss for at, loss in (*mine, *others) if at >= STEEP] or [mine[-1][1]]
    return min(losses), max(*losses, min(losses) + 1e-6)


# ---- edits and curves ------------------------------------------------------------------------------------------------


def gather(place: Place, night: Record) -> Extras:
    """Return the edits of a night whose journal is here, and the curves from the logs of its runs."""
    shown, diffs = telling(night), dict[int, str]()
    pairs = {attempt.number: attempt.parent for attempt in reversed(shown) if attempt.parent is not None}
    for number, parent in pairs.items() if night.is_here else ():  # the newest first, as far as there is room
        if sum(map(len, diffs.values())) < MOST_CHARS:
            diffs[number] = diff(*(night.attempts[at].proposal.script.splitlines() for at in (parent, number)))
    curves = {
        attempt.number: curve(place, night.tag, attempt.number, attempt.runs[0].seed, POINTS)
        for attempt in shown
        if attempt.runs
    }
    return Extras(diffs, {number: points for number, points in curves.items() if len(points) > 1})


def telling(night: Record) -> list[Attempt]:
    """Return the attempts whose edits and curves are shown: what was ever kept, and the newest."""
    newest = len(night.attempts) - NEWEST
    return [attempt for at, attempt in enumerate(night.attempts) if at >= newest or attempt.was_kept]


def diff(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the difference of two scripts as unified diff without its first two lines; a long one is cut."""
    lines = [line[:LINE_CHARS] for line in diff_lines(before, after)][2:]
    cut = [f"… {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return "\n".join(lines[:LINES] + cut)
