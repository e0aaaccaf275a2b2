"""What the morning shows: tables for the terminal, one attempt in full, and the picture of the progress."""

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent import ledger
from agent.confirmation import Findings, Interval
from agent.errors import MachineError, NightError
from agent.experiment import Attempt, Audit, Ending, History, Night, Noise, Run, Score, Status, attempt_ref, incumbent
from agent.noise import noise
from agent.plain_text import harmless, harmless_lines
from agent.proposers.mix import Share
from agent.screen import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, str]  # one line of results.tsv by column
LINE_CHARS = 100
LABEL_DEGREES, LABEL_CHARS = 20, 40
LABEL_PT = (150.0, 9.0)  # length of a label at most, and its height
LABEL_STARTS = 0.74  # of a panel's width: one that starts further to the right would not end inside
PANEL_PT = (650.0, 250.0)  # about what a panel's axes measure


def read_rows(path: Path) -> list[Row]:
    """The rows of a ledger; cells that an older or foreign row lacks are empty."""
    ledger.check_plain(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")
        return [{column: cell or "" for column, cell in row.items() if isinstance(column, str)} for row in reader]


def results_table(rows: Iterable[Row]) -> Table:
    """The ledger in short, one line an attempt."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("tag", "#"):
        table.add_column(column)
    for column in ("val_bpb", "GB", "wall s"):
        table.add_column(column, justify="right")
    for column in ("status", "description", "commit"):
        table.add_column(column)
    for row in rows:
        style = _style(row.get("status", ""))
        cells = [
            row.get(name, "")
            for name in ("tag", "attempt", "val_bpb", "memory_gb", "wall_s", "status", "description", "commit")
        ]
        table.add_row(*(Text(harmless(cell)) for cell in cells), style=style)
    return table


def status_lines(night: Night, history: History, *, pid: int | None, stopping: bool) -> list[str]:
    """Where a night stands, in a few lines."""
    state = f"running (pid {pid})" if pid else "not running"
    if pid and stopping:
        state += ", ends after this run"
    lines = [f"night {night.tag}: {state}"]
    lines.append(f"branch {_short(night.branch)}, {night.budget_s:g} s a run, {night.device}")
    count = {status: sum(attempt.status is status for attempt in history) for status in Status}
    counted = [f"{count[status]} {status}" for status in Status]
    if history and history[-1].decision is None:
        counted.append("1 unfinished")
    lines.append(f"{len(history)} attempt{'s' if len(history) != 1 else ''}: {', '.join(counted)}")
    stopped = early_stops(history)
    if stopped is not None:
        lines.append(stopped)
    best, first = incumbent(history), history[0] if history else None
    if best is not None and first is not None and best.val_bpb is not None and first.val_bpb is not None:
        side = "below" if best.val_bpb <= first.val_bpb else "above"  # dawn's runs may say so of a lucky keep
        gain = f"{abs(first.val_bpb - best.val_bpb):.6f} {side} the baseline's {first.val_bpb:.6f}"
        gain = gain if best.number else "the baseline"
        lines.append(f"best val_bpb {best.val_bpb:.6f} (#{best.number}), {gain}")
    found = noise(history)
    if found is not None:
        lines.append(noise_line(found))
    if history and not history[-1].settled:
        state = "at work" if pid else "unfinished, redone on resume"
        lines.append(f"{state}: #{history[-1].number} {history[-1].proposal.title}")
    return [harmless(line) for line in lines]


def early_stops(history: History) -> str | None:
    """How many runs were not finished because of their curves, and the training time which that saved; None: none."""
    runs = [run for attempt in history for run in attempt.done_runs]
    whole_s = [run.wall_s for run in runs if run.ending is Ending.FINISHED]
    stopped_s = [run.wall_s for run in runs if run.ending is Ending.HOPELESS]
    if not stopped_s or not whole_s:
        return None
    typical_s = statistics.median(whole_s)
    saved_s = sum(max(0.0, typical_s - wall_s) for wall_s in stopped_s)
    share = saved_s / (saved_s + sum(run.wall_s for run in runs))
    return f"{len(stopped_s)} of {len(runs)} runs stopped early, which saved {saved_s:.0f} s of training ({share:.0%})"


def verdict_facts(night: Night, history: History, number: int) -> dict[str, object]:
    """What `nightshift try --json` prints: how one attempt ended, and where the night stands."""
    attempt, best = history[number], incumbent(history)
    decision, summary = attempt.decision, attempt.summary
    return {
        "tag": night.tag,
        "attempt": number,
        "parent": attempt.parent,
        "commit": attempt.commit,
        "title": attempt.proposal.title,
        "status": attempt.status,
        "reason": decision.reason if decision else None,
        "val_bpb": attempt.val_bpb,
        "seeds": len(attempt.scores_bpb),
        "gain_bpb": decision.gain_bpb if decision else None,
        "sure": decision.sure if decision else None,
        "num_steps": summary.num_steps if summary else None,
        "total_tokens_M": summary.total_tokens_M if summary else None,
        "peak_vram_mb": summary.peak_vram_mb if summary else None,
        "spent_s": round(attempt.spent_s, 1),  # training, scoring and audit, of all its runs
        "best_attempt": best.number if best else None,
        "best_val_bpb": best.val_bpb if best else None,
        "branch": _short(night.branch),
        "go_back_with": _way_back(night, best, number),
    }


def verdict_lines(night: Night, history: History, number: int) -> list[str]:
    """The same for people, with what to do next."""
    attempt, best = history[number], incumbent(history)
    lines = [f"{attempt.status}: {attempt.decision.reason if attempt.decision else ''}"]
    if best is not None and best.val_bpb is not None:
        lines.append(f"best so far: #{best.number} {best.proposal.title}, val_bpb {best.val_bpb:.6f}")
    way_back = _way_back(night, best, number)
    if way_back is not None:
        lines.append(f"go back to it with: {way_back}")
    lines.append(f"more: nightshift show {number} --tag {night.tag}, nightshift results")
    return [harmless(line) for line in lines]


def _way_back(night: Night, best: Attempt | None, number: int) -> str | None:
    """What puts the best script into the working tree again; None where the attempt is the best."""
    return None if best is None or best.number == number else f"git checkout {_short(night.branch)} -- {night.script}"


def findings_lines(found: Findings, history: History, confirmed: str) -> list[str]:
    """What dawn has found, for people; confirmed is the branch with the script that it stands for."""
    best = history[found.champion]
    lines = [
        f"dawn: #{found.champion} {best.proposal.title}, against the baseline",
        f"  recorded gain   {found.recorded_bpb:+.6f} (by the night's own scores; shrunk: {found.believed_bpb:+.6f})",
        f"  honest gain     {_interval(found.honest)} (fresh seeds)",
        f"  on the holdout  {_interval(found.holdout)} (text that no attempt was judged by)",
    ]
    if found.honest and found.holdout and _are_apart(found.honest, found.holdout):
        lines.append("  ALARM: the two differ by more than chance: the night has fitted its validation text")
    left_alone = [edit for edit in found.edits if not edit.runs and edit.number not in found.passengers]
    for edit in found.edits:
        if edit not in left_alone:
            word = "a passenger, dropped" if edit.number in found.passengers else "it stays"
            title = history[edit.number].proposal.title
            lines.append(f"  #{edit.number} brings {_interval(edit.effect)}, {word}: {title}")
    if left_alone:
        sure = (f"#{edit.number} ({1 - edit.worthless:.0%} sure of a gain)" for edit in left_alone)
        lines.append(f"  not taken out: {', '.join(sure)}")
    if found.confirmed is not None:
        names = " and ".join(f"#{number}" for number in found.passengers)
        what = f"dropping {names} brings" if names else "dropping all that is in doubt, which therefore stays, brings"
        lines.append(f"  {what} {_interval(found.confirmed)}")
    if found.honest:
        nothing = found.passengers and len(found.passengers) == len(found.edits)
        what = "no edit of the night stays: the baseline's script" if nothing else "the confirmed script"
        lines.append(f"  {what} is on {_short(confirmed)}")
    return [harmless(line) for line in lines]


def _interval(found: Interval | None) -> str:
    if found is None:
        return "not measured: too few runs"
    return f"{found.mean_bpb:+.6f} [{found.low_bpb:+.6f}, {found.high_bpb:+.6f}]"


def _are_apart(one: Interval, other: Interval) -> bool:
    return one.low_bpb > other.high_bpb or other.low_bpb > one.high_bpb


def noise_line(found: Noise) -> str:
    if found.sigma_bpb == 0:
        return f"noise: none: {found.runs} runs of the same script with other seeds gave the same score"
    return (
        f"noise: σ {found.sigma_bpb:.6f} from {found.runs} repeated runs; two single runs tell differences "
        f"above {found.smallest_bpb:.6f} apart"
    )


def shares_lines(rows: Iterable[Share]) -> list[str]:
    """What each source of ideas has brought, and what it cost."""
    console = Console(file=io.StringIO(), width=LINE_CHARS)
    with console.capture() as shown:
        console.print(_shares_table(rows))
    return [line.rstrip() for line in shown.get().splitlines()]


def _shares_table(rows: Iterable[Share]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("source")
    for column in ("attempts", "kept", "gain_bpb", "hours", "calls", "failed", "tokens in", "out", "usd"):
        table.add_column(column, justify="right")
    for row in rows:
        counts = str(row.attempts), str(row.kept), f"{row.gain_bpb:.6f}", f"{row.hours:.2f}"
        calls = (str(row.calls), str(row.failures)) if row.calls else ("", "")
        tokens = ("" if count is None else f"{count:,}" for count in (row.tokens_in, row.tokens_out))
        table.add_row(Text(harmless(row.source)), *counts, *calls, *tokens, "" if row.usd is None else f"{row.usd:.2f}")
    return table


def attempt_view(night: Night, attempt: Attempt, folder: Path, *, running: bool = False) -> RenderableType:
    """Everything that is known about one attempt; running: of a night that is at work now."""
    facts = Table(box=None, pad_edge=False, show_header=False)
    decision = attempt.decision
    for name, value in (
        ("attempt", f"{attempt.number} of night {night.tag}"),
        ("title", attempt.proposal.title),
        ("hypothesis", attempt.proposal.hypothesis),
        ("source", attempt.proposal.source),
        ("parent", "" if attempt.parent is None else f"#{attempt.parent}"),
        ("decision", f"{decision.status}: {decision.reason}" if decision else "none yet"),
        ("val_bpb", "" if attempt.val_bpb is None else f"{attempt.val_bpb:.6f}"),
        ("commit", attempt.commit or ""),
        ("ref", attempt_ref(night.tag, attempt.number)),
        ("started", attempt.started),
        ("folder", str(folder)),
    ):
        facts.add_row(Text(name, style="bold"), Text(harmless_lines(value)))
    going_on = running and decision is None and bool(attempt.runs) and attempt.runs[-1].ending is Ending.LOST
    ended = attempt.runs[:-1] if going_on else attempt.runs
    now = [Text(f"\nrun with seed {attempt.runs[-1].seed}: going on")] if going_on else []
    return Group(facts, *(_run_view(run) for run in ended), *now)


def plot(rows: Sequence[Row], out: Path) -> None:
    """The running minimum of val_bpb, a panel for every night; raises MachineError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError("plot needs matplotlib; install it: pip install matplotlib") from error
    panels = _panels(rows)
    if not panels:
        raise NightError("results.tsv has no scored attempt to plot; run: nightshift run")
    figure = Figure(figsize=(10, 4.2 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), squeeze=False)
    for axes, members in zip(grid[:, 0], panels, strict=True):
        _draw(axes, members)
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise NightError(
            f"{out} cannot be written ({error}); name a .png or .svg file in an existing folder"
        ) from error


def _panels(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of one night, protocol and device together, in the order of the ledger; none without a score."""
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        panels.setdefault(tuple(row.get(name, "") for name in ("tag", "protocol", "device")), []).append(row)
    return [members for members in panels.values() if any(_score(row) is not None for row in members)]


def _score(row: Row) -> float | None:
    """None for a crash, whatever other tools write there, and for what is no number."""
    try:
        val_bpb = float(row.get("val_bpb", ""))
    except ValueError:
        return None
    crashed = row.get("status", "").lower() == Status.CRASH
    return val_bpb if math.isfinite(val_bpb) and not crashed else None


def _title(row: Row) -> str:
    budget = row.get("branch", "").removeprefix("experiments/").partition("-")[0]
    protocol = f"protocol {row['protocol']}" if row.get("protocol") else ""
    return (
        " · ".join(word for word in (row.get("tag"), row.get("device"), budget, protocol) if word)
        or "rows without a protocol"
    )


def _draw(axes: "Axes", rows: Sequence[Row]) -> None:
    scored = [(at, bpb, row) for at, row in enumerate(rows) if (bpb := _score(row)) is not None]
    kept = [(at, bpb, row["description"]) for at, bpb, row in scored if row["status"].lower() == Status.KEEP]
    rest = [(at, bpb) for at, bpb, row in scored if row["status"].lower() != Status.KEEP]
    axes.plot([at for at, _ in rest], [bpb for _, bpb in rest], "o", color="0.75", label="discarded")
    axes.plot([at for at, _, _ in kept], [bpb for _, bpb, _ in kept], "o", color="tab:green", label="kept")
    best = list(accumulate((bpb for _, bpb, _ in kept), min))
    if kept:  # the line goes on to the last attempt, kept or not
        places = [at for at, _, _ in kept] + [len(rows) - 1]
        axes.step(places, [*best, best[-1]], where="post", color="tab:green", alpha=0.6, label="running minimum")
    _frame(axes, [bpb for _, bpb, _ in kept], rest)
    last = max([len(rows) - 1, *(at / LABEL_STARTS for at, _, _ in kept)])
    axes.set_xlim(-0.03 * last, 1.03 * last or None)
    _label(axes, kept)
    axes.set(xlabel="attempt", ylabel="val_bpb (lower is better)")
    axes.set_title(_title(rows[0]), loc="left", fontsize=10)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.2)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4, frameon=False, fontsize=8)


def _frame(axes: "Axes", kept: Sequence[float], rest: Sequence[tuple[int, float]]) -> None:
    """Show what was kept in full; discards far above it would flatten the picture: they are arrows at its edge."""
    span = max(kept) - min(kept) if len(kept) > 1 else 0.0
    ceiling = max(kept, default=0.0) + span
    above = [at for at, bpb in rest if bpb > ceiling]
    if span > 0 and above:
        axes.set_ylim(min([*kept, *(bpb for _, bpb in rest)]) - 0.1 * span, ceiling)
        just_below = [ceiling - 0.05 * span] * len(above)
        axes.plot(above, just_below, "^", color="0.75", label="off the scale")


def _label(axes: "Axes", kept: Sequence[tuple[int, float, str]]) -> None:
    """Titles on a slope, the largest gains first; one that would run over another is left out."""
    axes.get_ylim()  # settles the limits that the positions below follow
    slope = math.radians(LABEL_DEGREES)
    gains = [math.inf, *(before[1] - after[1] for before, after in pairwise(kept))]
    taken: list[tuple[float, float]] = []
    for _, (at, bpb, title) in sorted(zip(gains, kept, strict=False), reverse=True):
        x, y = axes.transLimits.transform((at, bpb)) * PANEL_PT
        along, across = x * math.cos(slope) + y * math.sin(slope), y * math.cos(slope) - x * math.sin(slope)
        if any(abs(along - there) < LABEL_PT[0] and abs(across - line) < LABEL_PT[1] for there, line in taken):
            continue
        taken.append((along, across))
        text = title if len(title) <= LABEL_CHARS else f"{title[: LABEL_CHARS - 1]}…"
        label = axes.annotate(text, (at, bpb), textcoords="offset points", xytext=(4, 4), fontsize=7)
        label.set(rotation=LABEL_DEGREES, rotation_mode="anchor")


def _run_view(run: Run) -> Text:
    code = "" if run.exit_code is None else f", exit code {run.exit_code}"
    if run.exit_code and run.exit_code < 0:
        code = f", signal {-run.exit_code}"
    score = f", val_bpb {run.score.val_bpb:.6f}" if run.score and run.score.val_bpb is not None else ""
    why = f", {run.score.failure}" if run.score and run.score.failure else ""
    audit = f", {_audit_words(run.score.audit)}" if run.score and run.score.audit else ""
    dawn = " at dawn" if run.dawn else ""
    text = f"\nrun{dawn} with seed {run.seed}: {run.ending}{code}, {run.wall_s:.1f} s{score}{why}{audit}"
    text += f"{_holdout_words(run.holdout)}\n"
    return Text(harmless_lines(text + "\n".join(f"    {line}" for line in run.last_lines.splitlines())))


def _holdout_words(held: Score | None) -> str:
    if held is None:
        return ""
    audit = f", {_audit_words(held.audit)}" if held.audit else ""
    return f"; on the holdout {held.failure if held.val_bpb is None else f'{held.val_bpb:.6f}'}{audit}"


def _audit_words(audit: Audit) -> str:
    return f"audit: {audit.failure or f'passed at {audit.positions} positions'}"


def _style(status: str) -> str:
    try:
        return COLOURS[Status(status.lower())]
    except ValueError:
        return ""


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")
