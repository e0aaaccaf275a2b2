"""Put the report together: one HTML file that needs no network, with its style, its script and its charts inside.

Its Content-Security-Policy names the hashes of the style and of the scripts, and allows nothing else: no other script,
no evaluation of text, no request. So a title cannot become a program, even if a defect let it become HTML.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from agent.clock import utc_now
from agent.errors import NightError
from agent.experiment import LOCAL
from agent.invocation import typed
from agent.proposers.briefing import Curve
from agent.records.journal import Journal
from agent.records.place import Place
from agent.text import budget, counted, diff_lines, duration, one_line, percent_sure
from agent.view import words
from agent.view.facts.course import Kept, lineage, was_kept, with_overtaken
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.overview import gain_bpb, hours, overview_of
from agent.view.facts.read import curve
from agent.view.page import charts

ALL, NEWEST = 150, 75  # a longer night shows the edits and curves of what was ever kept, and of its newest attempts
POINTS, LINES, LINE_CHARS = 30, 300, 400  # of a curve, of a diff, of its lines
MOST_CHARS = 1_000_000  # of all diffs of a night
TITLE_CHARS, MOST_BRANCHES = 2000, 60
STEEP = 0.08  # of the budget: the first losses would flatten the rest
WORDS = {"keep": "kept", "discard": "discarded", "crash": "crashed"}


@dataclass(frozen=True, slots=True)
class Extras:
    """Hold edits and training losses of attempts by their numbers, as far as they are known."""

    diffs: Mapping[int, str] = field(default_factory=dict)
    curves: Mapping[int, Curve] = field(default_factory=dict)  # fraction of the budget, loss


def page(night: NightFacts, extras: Extras | None = None, live: str = "", version: int = 0) -> str:
    """Return the report of a night as HTML.

    live: a further script, which may ask the server that the page came from, and calls `renew(html)` of page.js.
    version: of the night's facts, for that script.
    """
    style, scripts = file("page.css"), [file("page.js"), *filter(None, [live])]
    attempts = {attempt.number: attempt for attempt in night.attempts}
    now, dawn = overview_of(night), night.dawn
    ideas = {idea.number: idea for idea in night.ideas}
    kept = [(edit, ideas[edit.number]) for edit in lineage(night) if edit.still_kept and edit.number in ideas]
    gains = {
        "in the night": now.gain,
        "on fresh seeds": dawn.honest if dawn else None,
        "on the holdout": dawn.holdout if dawn else None,
    }
    text = template("page.html").render(
        night=night,
        now=now,
        kept=sorted(kept, key=lambda pair: -(pair[0].gain_bpb or 0.0)),
        gains={name: gain for name, gain in gains.items() if gain is not None},
        workers=len({run.worker for attempt in night.attempts for run in attempt.runs}),
        progress=charts.progress_of(night),
        charts=[drawn for of in (charts.costs_of, charts.dials_of, charts.workers_of) if (drawn := of(night))],
        tree=branches(night),
        hours=[(what, spent) for what, spent in hours(night) if spent > 0],
        rows=[_row(attempt, attempts, extras or Extras()) for attempt in night.attempts],
        policy=_policy(style, scripts, connect=bool(live)),
        style=Markup(style),
        scripts=list(map(Markup, scripts)),
        version=version,
    )
    return text.encode(errors="replace").decode()  # a record's title may hold half a surrogate pair, which no file can


def template(name: str) -> Template:
    """Return a template of this folder, which escapes all that a night tells."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(file), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "bpb": words.bpb,
        "within": words.within,
        "ends": words.ends,
        "moment": words.moment,
        "budget": budget,
        "counted": counted,
        "duration": lambda seconds: duration(seconds / 3600),
        "sure": lambda share: words.NONE if share is None else percent_sure(share),
        "line": one_line,
        "cut": lambda text, most=TITLE_CHARS: text if len(text) <= most else f"{text[: most - 1]}…",
    }
    environment.globals |= {"typed": typed, "written": lambda: words.moment(utc_now())}
    return environment


def file(name: str) -> str:
    """Return a file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, scripts: Sequence[str], *, connect: bool) -> str:
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


# ---- the tree of kept edits ------------------------------------------------------------------------------------------


def branches(night: NightFacts) -> list[tuple[Kept, AttemptFacts, int]]:
    """Return the edits that were ever kept, each behind its parent, with how far from the best script's line it is.

    Of a long night they are those of the largest gains, each below its nearest ancestor that is shown.
    """
    every = lineage(night)
    parents = {edit.number: edit.parent for edit in every}
    shown = {
        edit.number for edit in sorted(every, key=lambda edit: edit.number and -(edit.gain_bpb or 0.0))[:MOST_BRANCHES]
    }

    def ancestor(number: int | None) -> int | None:
        while number is not None and number not in shown:
            number = parents.get(number)
        return number

    line, at = set[int](), night.incumbent
    while at is not None and at in parents:
        line.add(at)
        at = parents[at]
    few = with_overtaken(night, [replace(edit, parent=ancestor(edit.parent)) for edit in every if edit.number in shown])
    children = defaultdict[int | None, list[Kept]](list)
    for edit in few:
        children[edit.parent].append(edit)

    def below(parent: int | None, depth: int) -> Iterator[tuple[Kept, AttemptFacts, int]]:
        for edit in sorted(children[parent], key=lambda edit: (edit.number in line, edit.number)):
            further = depth if edit.number in line or parent is None else depth + 1
            attempt = night.attempt(edit.number)
            assert attempt is not None, "an edit that was kept is an attempt"
            yield edit, attempt, further
            yield from below(edit.number, further)

    return list(below(None, 0))


# ---- rows ------------------------------------------------------------------------------------------------------------


def _row(attempt: AttemptFacts, attempts: Mapping[int, AttemptFacts], extras: Extras) -> dict[str, Any]:
    """Return what the template shows of an attempt."""
    of_rows = "baseline" if attempt.number == 0 and attempt.status else WORDS.get(attempt.status or "")
    kind = attempt.kind or of_rows or "not decided"
    verdict = attempt.words or kind
    verdict = verdict if verdict.startswith(kind) else f"{kind}: {verdict}"
    mine = extras.curves.get(attempt.number)
    parents = extras.curves.get(attempt.parent) if attempt.parent is not None else None
    return {
        "attempt": attempt,
        "kind": kind,
        "verdict": verdict[:1].upper() + verdict[1:] + ("" if verdict[-1] in ".!?…" else "."),
        "gain_bpb": gain_bpb(attempt, attempts),
        "facts": list(_facts(attempt)),
        "diff": extras.diffs.get(attempt.number, "").splitlines(),
        "losses": Losses(mine, parents or ()) if mine else None,
    }


def _facts(attempt: AttemptFacts) -> Iterator[tuple[str, str]]:
    """Yield name and value of what is known of an attempt beside its cells."""
    if attempt.val_bpb is not None:
        yield "val_bpb", f"{attempt.val_bpb:.6f}"
    yield "spent", duration(attempt.spent_s / 3600)
    for name, (before, after) in attempt.dials.items():
        yield name, f"{before!r} → {after!r}"
    if attempt.params is not None:
        yield "parameters", f"{attempt.params / 1e6:.2f} M" if attempt.params >= 1e5 else f"{attempt.params:,}"
    if attempt.memory_gb:
        yield "memory", words.memory(1024 * attempt.memory_gb)
    if attempt.tokens_s is not None:
        yield "speed", f"{attempt.tokens_s:,.0f} tokens/s"
    if attempt.usd is not None:
        yield "paid", f"${attempt.usd:.2f}"
    workers = {run.worker for run in attempt.runs} - {LOCAL}
    if workers:
        yield "run on", ", ".join(sorted(workers))
    yield "begun", words.moment(attempt.started)
    if attempt.commit:
        yield "commit", attempt.commit[:7]


@dataclass(frozen=True, slots=True)
class Losses:
    """Hold the losses of an attempt, and those of another that it is compared with, for a drawing on one scale."""

    mine: Curve
    others: Curve

    @property
    def scale(self) -> tuple[float, float]:
        """Return the lowest and the highest loss of the scale."""
        losses = [loss for at, loss in (*self.mine, *self.others) if at >= STEEP] or [self.mine[-1][1]]
        return min(losses), max(*losses, min(losses) + 1e-6)


# ---- edits and curves ------------------------------------------------------------------------------------------------


def gather(place: Place, night: NightFacts) -> Extras:
    """Read the edits from the journal of a night, and the curves from the logs of its runs."""
    shown, diffs = telling(night), dict[int, str]()
    with suppress(NightError):  # a night without a journal here has neither scripts nor logs
        diffs = _diffs(place, night, shown)
    of_run = partial(curve, place, night.tag, most=POINTS)
    curves = {attempt.number: of_run(attempt.number, attempt.runs[0].seed) for attempt in shown if attempt.runs}
    return Extras(diffs, {number: points for number, points in curves.items() if len(points) > 1})


def telling(night: NightFacts) -> list[AttemptFacts]:
    """Return the attempts whose edits and curves are shown."""
    if len(night.attempts) <= ALL:
        return list(night.attempts)
    newest = night.attempts[-NEWEST].number
    return [attempt for attempt in night.attempts if attempt.number >= newest or was_kept(attempt)]


def _diffs(place: Place, night: NightFacts, shown: Sequence[AttemptFacts]) -> dict[int, str]:
    """Return the edits of attempts, those of the newest first, as far as there is room."""
    pairs = {attempt.number: attempt.parent for attempt in shown if attempt.parent is not None}
    with Journal.read(place.journal(night.tag)) as journal:
        scripts = {one.number: one.proposal.script for one in journal.attempts_among({*pairs, *pairs.values()})}
    diffs, left = dict[int, str](), MOST_CHARS
    for number, parent in sorted(pairs.items(), reverse=True):
        diffs[number] = diff(scripts[parent].splitlines(), scripts[number].splitlines())
        left -= len(diffs[number])
        if left < 0:
            break
    return diffs


def diff(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the difference of two scripts as unified diff without its first two lines; a long one is cut."""
    lines = [line[:LINE_CHARS] for line in diff_lines(before, after)][2:]
    cut = [f"… {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return "\n".join(lines[:LINES] + cut)
