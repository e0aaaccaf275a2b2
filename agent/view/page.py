"""Put the report together: one HTML file that needs no network, with its style, its script and its charts inside.

Its Content-Security-Policy names the hashes of the style and of the scripts, and allows nothing else: no other script,
no evaluation of text, no request. So a title cannot become a program, even if a defect let it become HTML.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from agent.clock import utc_now
from agent.experiment import Attempt
from agent.invocation import typed
from agent.proposers.proposer import Left
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.record import Record
from agent.records.summary import confirmed_gain, summary_of
from agent.text import (
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
from agent.view.answer import in_order
from agent.view.charts import file
from agent.view.run_files import Curve, before_training, curve, log_tail, training_progress
from agent.view.study import COLUMNS, notes, of_study, plots_of, row_of, rule_words
from agent.view.terminal import measured_facts
from agent.work import Work

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


@dataclass(frozen=True, slots=True)
class Live:
    """Describe what a night does now, for a page that loads its newer self."""

    again_s: float  # s between two loads
    left: Left | None = None  # what is left of the night; None: it does not run
    jobs: Sequence[Mapping[str, Any]] = ()  # one for each worker that has one
    # The end of the log and, below, the losses beside the best script's are shown where one job alone is at work.
    log: str | None = None
    losses: tuple[Curve, Curve] | None = None


def page(night: Record, extras: Extras | None = None, live: Live | None = None) -> str:
    """Return the report of a night as HTML; live: of one that loads its newer self."""
    style, script = file("page.css"), file("page.js")
    now, study = summary_of(night), of_study(night)
    gains = {"in the night": now.gain}
    if night.findings is not None:
        gains |= {"on fresh seeds": night.findings.honest, "on the holdout": night.findings.holdout}
    return _template().render(
        night=night,
        form=words.Form.of(night.night, is_page=True),
        now=now,
        kept=charts.largest_kept(night),
        gains={name: gain for name, gain in gains.items() if gain is not None},
        workers=len({run.worker for attempt in night.attempts for run in attempt.runs}),
        progress=None if study else charts.progress_of(night),
        study=study,
        plots=None if study is None else plots_of(study),
        dials=charts.dials_of(night),
        extras=extras or Extras(),
        live=live,
        policy=_policy(style, script, connect=live is not None),
        style=Markup(style),
        script=Markup(script),
    )


@cache
def _template() -> Template:
    """Return the template of the page, which escapes all that a night tells, and makes it harmless."""
    environment = Environment(
        loader=FunctionLoader(file), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        finalize=lambda shown: harmless_lines(shown) if type(shown) is str else shown,  # HTML (Markup) stays as it is
    )  # fmt: skip
    environment.filters |= {
        "belief": words.belief,
        "doubt": words.doubt_words,
        "others": words.others_words,
        "reported": words.reported_words,
        "moment": words.moment,
        "outcome": words.outcome,
        "speed": words.speed,
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
        "measured": measured_facts,
        "typed": typed,
        "row_of": row_of,
        "rule_words": rule_words,
        "study_columns": COLUMNS,
        "study_notes": notes,
        "written": lambda: words.moment(utc_now()),
        "again": confirmed_gain,
        "verdict_on": words.verdict_on,
        "lowest": words.lowest_words,
    }
    return environment.get_template("page.html")


def _policy(style: str, script: str, *, connect: bool) -> str:
    hashes = f"script-src {_hash(script)}; style-src {_hash(style)}"
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


# ---- what the night does now -----------------------------------------------------------------------------------------


def live_of(place: Place, night: Record, left: Left | None, again_s: float) -> Live:
    """Return what a night does now; left: of it where it runs. Raise NightError where its journal is gone."""
    if left is None:
        return Live(again_s)
    with Journal.read(place.journal(night.tag)) as journal:
        work = sorted(journal.work(), key=lambda work: in_order(work.worker))
    log, losses = None, None
    if len(work) == 1 and (seed := work[0].seed) is not None:
        log = log_tail(place, night.tag, work[0].attempt, seed)
        losses = _losses(place, night, work[0].attempt, seed)
    return Live(again_s, left, [_job(place, night, job) for job in work], log, losses)


def _job(place: Place, night: Record, work: Work) -> dict[str, Any]:
    """Return what a worker does, as the page shows it."""
    point = training_progress(place.folder(night.tag), work)
    return {
        "work": work,
        "doing": words.doing_words(work),
        "attempt": night.attempt(work.attempt),  # None where it was begun after the record was read
        "fraction": None if point is None else words.within_one(point.fraction),  # None where its end is not known
        "pace": words.pace_words(point, night.budget_s, work.began, before_training(place.folder(night.tag), work)),
    }


def _losses(place: Place, night: Record, number: int, seed: int) -> tuple[Curve, Curve] | None:
    """Return the losses of a run, and the best script's, by the same seed if it ran with it."""
    losses, others, best = curve(place, night.tag, number, seed), Curve(), night.best
    if best is not None and best.number != number:
        others = curve(place, night.tag, best.number, seed) or curve(place, night.tag, best.number, best.runs[0].seed)
    return (losses, others) if len(losses) > 1 else None
