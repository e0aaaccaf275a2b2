"""The table's data: a row of every attempt, and the details of those that can be opened."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

from agent.experiment import LOCAL
from agent.invocation import typed
from agent.text import percent_sure
from agent.view.facts.lineage import was_kept
from agent.view.facts.nouns import AttemptFacts, NightFacts
from agent.view.facts.overview import gain_bpb
from agent.view.page.extras import Extras

ALL, NEWEST = 1000, 500  # a longer night shows details of what was ever kept, and of its newest attempts
TITLE_CHARS, TEXT_CHARS = 2000, 8000
WORDS = {"keep": "kept", "discard": "discarded", "crash": "crashed"}
FIRST = 50  # rows that are there without JavaScript


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else round(value, digits)


COLUMNS: Mapping[str, Callable[[AttemptFacts], object]] = {
    "number": lambda one: one.number,
    "parent": lambda one: one.parent,
    "title": lambda one: cut(one.title, TITLE_CHARS),
    "source": lambda one: one.source,
    "status": lambda one: one.status,
    "kind": lambda one: kind_of(one),
    "words": lambda one: one.words and cut(one.words, TITLE_CHARS),
    "val_bpb": lambda one: _rounded(one.val_bpb),
    "gain_bpb": lambda one: _rounded(one.gain_bpb),
    "sure": lambda one: _rounded(one.sure, 4),
    "seeds": lambda one: one.seeds,
    "spent_s": lambda one: _rounded(one.spent_s, 0),
}


def night_state(night: NightFacts, extras: Extras) -> dict[str, object]:
    """Return what page.js shows of a night: rows as lists of cells, details by the attempts' numbers."""
    newest = len(night.attempts) - (len(night.attempts) if len(night.attempts) <= ALL else NEWEST)
    told = [one for at, one in enumerate(night.attempts) if at >= newest or was_kept(one)]
    return {
        "tag": night.tag,
        "program": typed(),  # with which a command begins
        "incumbent": night.incumbent,
        "columns": list(COLUMNS),
        "rows": [[cell(one) for cell in COLUMNS.values()] for one in with_gains(night)],
        "details": {one.number: _details(one) for one in told},
        "diffs": {number: text for (tag, number), text in extras.diffs.items() if tag == night.tag},
        "curves": {number: points for (tag, number), points in extras.curves.items() if tag == night.tag},
    }


def kind_of(one: AttemptFacts) -> str | None:
    """Return the kind of the latest decision; of a night of which only rows are left, a word for the status."""
    return one.kind or ("baseline" if one.number == 0 and one.status else WORDS.get(one.status or ""))


def with_gains(night: NightFacts) -> list[AttemptFacts]:
    """Return the attempts, with the difference of two scores as their gain where the judge has left no estimate."""
    known = {one.number: one for one in night.attempts}
    return [replace(one, gain_bpb=gain_bpb(one, known)) for one in night.attempts]


def _details(one: AttemptFacts) -> dict[str, object]:
    decisions = one.decisions if len(one.decisions) > 1 else ()
    merges = {"merges": one.merges, "merged_as": one.merged_as}
    return {
        "hypothesis": cut(one.hypothesis, TEXT_CHARS),
        "started": one.started,
        "commit": one.commit and one.commit[:7],
        "memory_gb": _rounded(one.memory_gb, 3),
        "params": one.params,
        "tokens_s": _rounded(one.tokens_s, 0),
        "usd": _rounded(one.usd, 4),
        **{name: number for name, number in merges.items() if number is not None},
        "dials": [[name, repr(before), repr(after)] for name, (before, after) in one.dials.items()],
        "runs": [
            [
                run.seed,
                run.dawn,
                run.ending,
                _rounded(run.val_bpb),
                _rounded(run.holdout_bpb),
                run.failure and cut(run.failure, TITLE_CHARS),
                _rounded(run.train_s + run.scoring_s, 0),
                *([] if run.worker == LOCAL else [cut(run.worker, TITLE_CHARS)]),
            ]
            for run in one.runs
        ],
        "decisions": [[made.at, made.kind, cut(made.words, TITLE_CHARS)] for made in decisions],
    }


def cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[: most_chars - 1]}…"


def first_rows(night: NightFacts) -> str:
    """Return the first rows as HTML, for a reader without JavaScript, such as the preview of a phone."""
    return "".join(map(_first_row, with_gains(night)[:FIRST]))


def _first_row(one: AttemptFacts) -> str:
    score = "–" if one.val_bpb is None else f"{one.val_bpb:.4f}"
    gain = "–" if one.gain_bpb is None else f"{one.gain_bpb:+.4f}".replace("-", "−")
    sure = "–" if one.sure is None else percent_sure(one.sure)
    cells = [
        f'<td class="number">{one.number}</td>',
        f'<td><span class="title" dir="auto">{escape(cut(one.title, 200))}</span></td>',
        f'<td><span class="verdict"><span>{escape(kind_of(one) or "not decided")}</span></span></td>',
        *(f'<td class="number{name}">{text}</td>' for text, name in ((score, ""), (gain, ""), (sure, " sure"))),
        f'<td class="number wide">{one.seeds}</td><td class="wide">{escape(one.source)}</td>',
    ]
    return f'<tr class="{one.status or "open-yet"}">{"".join(cells)}</tr>'
