"""What the morning shows: tables for the terminal, one attempt in full, and the picture of the progress."""

import csv
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.errors import MachineError, NightError
from agent.experiment import Attempt, History, Night, Run, Status, attempt_ref, incumbent
from agent.screen import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, str]  # one line of results.tsv by column


def read_rows(path: Path) -> list[Row]:
    """The rows of a ledger; cells that an older or foreign row lacks are empty."""
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
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def status_lines(night: Night, history: History, *, pid: int | None, stopping: bool) -> list[str]:
    """Where a night stands, in a few lines."""
    state = f"running (pid {pid})" if pid else "not running"
    if pid and stopping:
        state += ", ends after this run"
    lines = [f"night {night.tag}: {state}"]
    lines.append(f"branch {_short(night.branch)}, {night.budget_s:g} s a run, {night.device}")
    count = {status: sum(attempt.status is status for attempt in history) for status in Status}
    lines.append(f"{len(history)} attempts: " + ", ".join(f"{count[status]} {status}" for status in Status))
    best, first = incumbent(history), history[0] if history else None
    if best is not None and first is not None and best.val_bpb is not None and first.val_bpb is not None:
        gain = f"{first.val_bpb - best.val_bpb:.6f} below the baseline's {first.val_bpb:.6f}"
        lines.append(f"best val_bpb {best.val_bpb:.6f} (#{best.number}), {gain}")
    if history and not history[-1].settled:
        lines.append(f"at work: #{history[-1].number} {history[-1].proposal.title}")
    return lines


def attempt_view(night: Night, attempt: Attempt, folder: Path) -> RenderableType:
    """Everything that is known about one attempt."""
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
        facts.add_row(Text(name, style="bold"), Text(value))
    return Group(facts, *(_run_view(run) for run in attempt.runs))


def plot(rows: Sequence[Row], out: Path) -> None:
    """The running minimum of val_bpb, one panel per protocol; raises MachineError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError("plot needs matplotlib; install it: pip install matplotlib") from error
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row.get("protocol", ""), []).append(row)
    if not any(row.get("val_bpb") for row in rows):
        raise NightError("results.tsv has no scored attempt to plot; run: nightshift run")
    figure = Figure(figsize=(10, 4.2 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), squeeze=False)
    for axes, (protocol, members) in zip(grid[:, 0], panels.items(), strict=True):
        _draw(axes, members, protocol)
    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise NightError(
            f"{out} cannot be written ({error}); name a .png or .svg file in an existing folder"
        ) from error


def _draw(axes: "Axes", rows: Sequence[Row], protocol: str) -> None:
    scored = [(at, float(row["val_bpb"]), row) for at, row in enumerate(rows) if row.get("val_bpb")]
    kept = [(at, bpb, row["description"]) for at, bpb, row in scored if row["status"].lower() == Status.KEEP]
    rest = [(at, bpb) for at, bpb, row in scored if row["status"].lower() != Status.KEEP]
    axes.plot([at for at, _ in rest], [bpb for _, bpb in rest], "o", color="0.75", label="discarded")
    axes.plot([at for at, _, _ in kept], [bpb for _, bpb, _ in kept], "o", color="tab:green", label="kept")
    best = list(accumulate((bpb for _, bpb, _ in kept), min))
    if kept:  # the line goes on to the last attempt, kept or not
        places = [at for at, _, _ in kept] + [len(rows) - 1]
        axes.step(places, [*best, best[-1]], where="post", color="tab:green", alpha=0.6, label="running minimum")
    for at, bpb, title in kept:
        axes.annotate(title[:48], (at, bpb), textcoords="offset points", xytext=(4, 6), fontsize=7, rotation=20)
    _frame(axes, [bpb for _, bpb, _ in kept], [bpb for _, bpb in rest])
    devices = ", ".join(sorted({row.get("device", "") for row in rows} - {""}))
    axes.set(xlabel="attempt", ylabel="val_bpb (lower is better)", title=f"{devices}  {protocol}".strip())
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _frame(axes: "Axes", kept: Sequence[float], rest: Sequence[float]) -> None:
    """Show what was kept in full; discards far above it would flatten the picture and stay outside."""
    span = max(kept) - min(kept) if len(kept) > 1 else 0.0
    if span > 0 and rest and max(rest) > max(kept) + span:
        axes.set_ylim(min([*kept, *rest]) - 0.1 * span, max(kept) + span)


def _run_view(run: Run) -> Text:
    code = "" if run.exit_code is None else f", exit code {run.exit_code}"
    score = f", val_bpb {run.score.val_bpb:.6f}" if run.score and run.score.val_bpb is not None else ""
    why = f", {run.score.failure}" if run.score and run.score.failure else ""
    text = f"\nrun with seed {run.seed}: {run.ending}{code}, {run.wall_s:.1f} s{score}{why}\n"
    return Text(text + "\n".join(f"    {line}" for line in run.last_lines.splitlines()))


def _style(status: str) -> str:
    try:
        return COLOURS[Status(status.lower())]
    except ValueError:
        return ""


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")
