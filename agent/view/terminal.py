"""Write verdicts, the results, and one attempt in full as lines for a terminal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.text import Text

from agent.experiment import TRUSTED, Attempt, Ending, Kind, Night, Run, Status, attempt_ref, memory_gb
from agent.invocation import typed
from agent.records.record import Record
from agent.records.results import Row, number_of, rows_of
from agent.records.summary import (
    NightSummary,
    Scored,
    Share,
    confirmed_gain,
    gain_bpb,
    gain_over_baseline,
    lower_bpb,
    speed_of,
)
from agent.text import SAID_CHARS, counted, duration, harmless, harmless_lines, one_line, percent_sure
from agent.view.screen import Column, folded, table_lines
from agent.view.words import (
    BETWEEN,
    ESTIMATED,
    SURE,
    Form,
    memory,
    moment,
    outcome,
    verdict_on,
)
from agent.work import LOCAL

LEAST_SHOWN = 3  # edits at the end of a night, also where the rest fills the screen
LOG_WIDTH = 100  # characters; a log has no width, and `nightshift results` shows the table in full
COLOURS: Mapping[str, str] = {Status.KEEP: "green", Status.DISCARD: "bright_black", Status.CRASH: "red"}


def verdict_line(record: Record, attempt: Attempt) -> Text:
    """Return number, title, score, the difference to the parent's, and what became of it, with what more is known."""
    lower, more, form = lower_bpb(attempt, record.parent(attempt)), attempt.words or "", Form.of(record.night)
    words = [f"#{attempt.number}", harmless(attempt.title)]
    words += [] if attempt.val_bpb is None else [f"{record.night.metric} {form.number(attempt.shown_bpb)}"]
    words += [] if lower is None else [form.better(lower)]
    became = outcome(attempt.kind, lower)
    if attempt.kind in {*ESTIMATED, Kind.BASELINE}:
        more = "" if attempt.sure is None or became == Kind.WORSE else f"{percent_sure(attempt.sure)} sure of a gain"
    line = Text(BETWEEN).join(map(Text, words)) + BETWEEN + Text(became, COLOURS[attempt.status or Status.CRASH])
    return line + f" ({harmless(more)})" if more else line


# ---- the results -----------------------------------------------------------------------------------------------------

RESULTS = (  # a narrow terminal leaves out the highest rank first
    Column("tag", rank=1),
    Column("#", right=True),
    Column("val_bpb", right=True),
    Column("change", right=True, rank=2),
    Column("sure", right=True, rank=3),
    Column("again", right=True, rank=4),
    Column("seeds", right=True, rank=6),
    Column("steps", right=True, rank=6),
    Column("speed", right=True, rank=5),
    Column("verdict"),
    Column("description", least=30),
    Column("reason", rank=7, least=24),
    Column("memory", right=True, rank=8),
    Column("wall s", right=True, rank=9),
    Column("commit", rank=10),
)
LEGEND = {  # column → explanation below a table that has it
    "change": "change: the score minus the parent's",
    "sure": SURE,
    "again": "again: the gain that confirm measured on fresh seeds",
    "speed": "speed: tokens/s beside the parent's",
}
NAMES = "confirmation  "  # the longest name of a fact, and a gap
PATHS = ("folder", "ref", "commit", "weights")
SHARES = (
    Column("proposer"),
    *(Column(name, right=True) for name in ("attempts", "kept", "estimated gain", "hours")),
    *(Column(name, right=True, rank=1) for name in ("calls", "failed", "tokens in", "out", "usd")),
)


def results_lines(rows: Sequence[Row], width: int | None, nights: Mapping[str, Record], more: int = 0) -> list[Text]:
    """Return the results with one line for each attempt, and what its columns mean.

    width: of the terminal; None for all columns in full. nights: by their tags, as far as more than their rows is here.
    more: attempts that are left out.
    """
    several = len({row.get("tag") for row in rows}) > 1
    cells = (_cells(row, several, nights.get(row.get("tag", ""))) for row in rows)
    known = {tag: (nights[tag].night.metric, nights[tag].night.better) for tag in nights}
    metrics = {known.get(row.get("tag", ""), (TRUSTED, "lower")) for row in rows}
    metric, better = metrics.pop() if len(metrics) == 1 else (TRUSTED, "")
    score_column = Column(metric, right=True)
    columns = [score_column if column.name == TRUSTED else column for column in RESULTS]
    header, *lines = table_lines(columns, cells, width)
    colours = (COLOURS.get(row.get("status", "").lower(), "") for row in rows)
    styled = zip([header, *lines], ["bold", *colours], strict=True)
    explained = LEGEND | ({"change": f"{LEGEND['change']}, {better} is better"} if better else {})
    legend = "; ".join(words for name, words in explained.items() if name in header.split())
    last = [Text(f"and {more} more")] if more else []
    last += [Text(legend, "dim")] if legend else []
    return [*(Text(line, style, no_wrap=True) for line, style in styled), *last]


def tried_lines(record: Record, width: int | None, room: int) -> list[Text]:
    """Return the rows of the edits with the largest gains over their parents, in their order; none without any.

    width: of the terminal; None where a log gets them. room: the lines for all of it.
    """

    def gain(attempt: Attempt) -> float:
        gained_bpb = gain_bpb(attempt, record.parent(attempt))
        return -math.inf if gained_bpb is None else gained_bpb

    decided = [attempt for attempt in record.ideas if attempt.decision is not None]
    largest = sorted(decided, key=gain, reverse=True)
    for shown in range(min(len(largest), max(room, LEAST_SHOWN)), 0, -1):
        numbers = {str(attempt.number) for attempt in largest[:shown]}
        rows = [row for row in rows_of(record.night, record.attempts) if row["attempt"] in numbers]
        lines = results_lines(rows, width or LOG_WIDTH, {record.tag: record}, len(decided) - shown)
        if shown <= LEAST_SHOWN or sum(len(folded(line, width or LOG_WIDTH)) for line in lines) <= room:
            return lines
    return []


def _cells(row: Row, several: bool, night: Record | None) -> tuple[str, ...]:
    """Return the cells of a row, with what its night tells beside it."""
    numbers = (number_of(row.get(name, "")) for name in ("attempt", "sure", "speed", "memory_gb", "wall_s"))
    number, sure, speed, peak_gb, wall_s = numbers
    attempt = None if night is None or number is None else night.attempt(int(number))
    lower, again, became, reason = None, None, row.get("status", ""), row.get("reason", "")
    form, change = Form(), ""
    if night is not None and attempt is not None:
        form = Form.of(night.night)
        lower, again = lower_bpb(attempt, night.parent(attempt)), confirmed_gain(night, attempt)
        change = form.number(None if lower is None else -night.night.sign * lower, "+")
        became = outcome(attempt.kind, lower)
        reason = "" if attempt.kind in ESTIMATED and lower is not None else reason  # the numbers tell it
    return (
        row.get("tag", "") if several else "",
        row.get("attempt", ""),
        row.get("val_bpb", ""),
        change,
        "" if sure is None or again is not None else percent_sure(sure),
        "" if again is None else form.number(again.mean_bpb, "+"),
        row.get("seeds", ""),
        row.get("steps", ""),
        "" if speed is None else f"×{speed:.2f}",
        became,
        row.get("description", ""),
        reason,
        "" if peak_gb is None else memory(peak_gb),
        "" if wall_s is None else f"{wall_s:.0f}",
        row.get("commit", ""),
    )


def shares_lines(now: NightSummary, width: int | None) -> list[str]:
    """Return a table of the gains and costs of each proposer; width: of a terminal, None to show all columns."""
    return table_lines(SHARES, [_share(row, Form.of(now.night)) for row in now.proposers], width)


def failure_lines(rows: Iterable[Share]) -> list[str]:
    """Say of each proposer whose latest call failed how many did and why, since its cost goes on."""
    return [
        f"{one_line(row.proposer, SAID_CHARS)}: {row.failures} of {counted(row.calls, 'call')} failed, the last one: "
        f"{one_line(row.last_failure, SAID_CHARS)}"
        for row in rows
        if row.last_failure is not None
    ]


def _share(row: Share, form: Form) -> tuple[str, ...]:
    counts = str(row.attempts), str(row.kept), form.number(row.gain_bpb), f"{row.hours:.2f}"
    calls = (str(row.calls), str(row.failures)) if row.calls else ("", "")
    tokens = ("" if count is None else f"{count:,}" for count in (row.tokens_in, row.tokens_out))
    return row.proposer, *counts, *calls, *tokens, "" if row.usd is None else f"{row.usd:.2f}"


# ---- one attempt -----------------------------------------------------------------------------------------------------


def measured_facts(record: Record, attempt: Attempt) -> dict[str, str]:
    """Return name → what was measured of an attempt, in words; "" for what is not known."""
    scored, peak_gb = Scored.of(record, attempt), memory_gb(record.night, attempt)
    lower, again = lower_bpb(attempt, record.parent(attempt)), confirmed_gain(record, attempt)
    over_first, form = gain_over_baseline(record, attempt), Form.of(record.night)
    speed = speed_of(attempt, record.parent(attempt))
    beside = "" if speed is None else f", {speed:.2f} of its parent's"
    confirmation, honest = record.findings, ""
    if (
        confirmation is not None
        and confirmation.honest is not None
        and attempt.number in (confirmation.best, confirmation.script)
    ):
        honest = f"{form.interval(confirmation.honest)} for #{confirmation.best}, on fresh seeds"
    return {
        record.night.metric: "" if scored is None else form.interval(scored.interval, sign=""),
        "seeds": "" if scored is None else str(scored.seeds),
        "change": "" if lower is None else f"{form.better(lower)} than its parent",
        "sure": "" if attempt.sure is None or again is not None else percent_sure(attempt.sure),
        "gain": "" if over_first is None else f"{form.interval(over_first)} over #0, by the night's own scores",
        "confirmation": honest,
        "parameters": "" if attempt.params is None else f"{attempt.params:,}",
        "memory": "" if peak_gb is None else memory(peak_gb),
        "steps": "" if attempt.steps is None else f"{attempt.steps:,}",
        "tokens/s": "" if attempt.tokens_s is None else f"{attempt.tokens_s:,.0f}{beside}",
        "plain": f"{', '.join(attempt.outline.plain)}: edited, so without a kernel" if attempt.outline.plain else "",
        "spent": duration(attempt.spent_s / 3600) if attempt.runs else "",
        "paid": "" if (usd := record.usd(attempt)) is None else f"${usd:.2f}",
    }


def attempt_lines(record: Record, attempt: Attempt, folder: Path | None, *, running: bool = False) -> list[Text]:
    """Return all facts about one attempt.

    folder: None where its night is elsewhere. running: its night is.
    """
    decision, proposal, merged_as = attempt.decision, attempt.proposal, record.merged_as.get(attempt.number)
    earlier = attempt.decisions if decision is None else attempt.decisions[:-1]
    measured = measured_facts(record, attempt)
    measured["sure"] += SURE.removeprefix("sure") if measured["sure"] else ""
    has_log = folder is not None and attempt.status is Status.CRASH and attempt.runs
    facts = {
        "attempt": f"{attempt.number} of night {record.tag}",
        "title": proposal.title,
        "hypothesis": proposal.hypothesis,
        "proposer": proposal.proposer,
        "parent": "" if attempt.parent is None else f"#{attempt.parent}",
        "merges": "" if proposal.merges is None else f"#{proposal.merges}, which was overtaken",
        "merged as": "" if merged_as is None else f"#{merged_as}",
        "verdict": verdict_on(record, attempt) if decision else "none yet",
        "its log": typed("show", f"{record.tag}:{attempt.number}", "--log") if has_log else "",
        "before": "\n".join(f"{moment(before.at)} {before.kind}: {before.reason}" for before in earlier),
        **measured,
        "commit": attempt.commit or "",
        "ref": attempt_ref(record.tag, attempt.number),
        "started": moment(attempt.started),
        "folder": "" if folder is None else str(folder),
    }
    shown = (line for name, value in facts.items() if value for line in fact_lines(name, value))
    return [*shown, *(line for run in attempt.runs for line in _run_lines(run, record.night, running=running))]


def fact_lines(name: str, value: str) -> list[Text]:
    """Return a name and its value; a path is not to be folded, so that it can be copied."""
    return [
        Text.assemble((f"{'' if at else name:<{len(NAMES)}}", "bold"), line, no_wrap=name in PATHS)
        for at, line in enumerate(harmless_lines(value).split("\n"))
    ]


def _run_lines(run: Run, night: Night, *, running: bool) -> list[Text]:
    """Return how a run ended, and the end of its log; running: its night is, so it may go on."""
    where = "" if run.worker == LOCAL else f" on {run.worker}"
    name = f"{'confirmation ' if run.confirmation else ''}run with seed {run.seed}{where}"
    if run.ending is Ending.RUNNING:
        return [Text(""), Text(harmless(f"{name}: {'going on' if running else Ending.LOST}"))]
    facts = [str(run.ending), f"exit code {run.exit_code}" if run.exit_code else "", f"{run.wall_s:.1f} s"]
    for scored, text in ((run.score, ""), (run.holdout, "on the holdout ")):
        if scored is not None:
            number = Form.of(night).number(scored.val_bpb)
            facts += [f"{text}{night.metric} {number}" if number else "", scored.failure or ""]
            audit = scored.audit
            facts += [f"audit: {audit.failure or f'passed at {audit.positions} positions'}"] if audit else []
    line = Text(harmless(f"{name}: {', '.join(filter(None, facts))}"))
    log = [Text(f"    {harmless(line)}", no_wrap=True) for line in run.last_lines.splitlines()]
    return [Text(""), line, *log]
