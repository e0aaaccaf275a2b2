"""Draw a night's progress: kept, discarded and crashed attempts, and the running minimum of val_bpb."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import MachineError, NightError
from agent.experiment import Status
from agent.invocation import install_command, typed
from agent.judging.confirmation import SOURCE as DAWN
from agent.records.ledger import Row
from agent.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_DEGREES, LABEL_CHARS = 20, 40
LABEL_PT = (150.0, 9.0)  # a label's greatest length, and its height
LABEL_STARTS = 0.74  # of a panel's width: a label that starts further right would not fit
PANEL_PT = (650.0, 250.0)  # approximate size of a panel's axes
AT_EDGE, EDGE_MARGIN = 0.97, 0.07  # of a panel's height: attempts without a score lie at its upper edge


def chosen(rows: Sequence[Row], tags: Sequence[str], latest: str | None, *, everything: bool) -> list[Row]:
    """Return the rows of all nights, of the tagged ones, or of the latest; raise NightError for an unknown tag."""
    known = list(dict.fromkeys(row.get("tag", "") for row in rows))
    for tag in tags:
        if tag not in known:
            there = ", ".join(filter(None, known)) or "none"
            raise NightError(f"results.tsv has no night {tag}; there are: {there}")
    if everything:
        return list(rows)
    wanted = tags or [latest if latest in known else last_night(rows)]
    return [row for row in rows if row.get("tag", "") in wanted]


def last_night(rows: Iterable[Row]) -> str:
    """Return the tag of the row with the latest start."""
    return max(rows, key=lambda row: row.get("started", ""), default=Row()).get("tag", "")


def plot(rows: Sequence[Row], out: Path) -> None:
    """Draw one panel for each night into a file; raise MachineError without matplotlib, NightError without scores."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MachineError(f"plot needs matplotlib; install it: {install_command('matplotlib')}") from error
    panels = _panels(rows)
    if not panels:
        raise NightError(f"results.tsv has no scored attempt to plot; run: {typed('run')}")
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
    """Group ideas by night, protocol and device, in the ledger's order, and leave out groups without any score."""
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.get("source") != DAWN:  # dawn's ablations of the champion are no ideas
            panels.setdefault(tuple(row.get(name, "") for name in ("tag", "protocol", "device")), []).append(row)
    return [members for members in panels.values() if any(_score(row) is not None for row in members)]


def _score(row: Row) -> float | None:
    """Return val_bpb; None for a crash (other tools may write a number there) and for text that is no number."""
    try:
        val_bpb = float(row.get("val_bpb", ""))
    except ValueError:
        return None
    return val_bpb if math.isfinite(val_bpb) and not _has(row, Status.CRASH) else None


def _has(row: Row, status: Status) -> bool:
    return row.get("status", "").lower() == status


def _title(row: Row) -> str:
    budget = row.get("branch", "").removeprefix("experiments/").partition("-")[0]
    protocol = f"protocol {row['protocol']}" if row.get("protocol") else ""
    return (
        " · ".join(word for word in (row.get("tag"), row.get("device"), budget, protocol) if word)
        or "rows without a protocol"
    )


def _numbers(rows: Sequence[Row]) -> list[int]:
    """Return each row's place on the axis: its attempt's number, or its index if rows lack numbers."""
    numbers = [row.get("attempt", "") for row in rows]
    return [int(number) for number in numbers] if all(map(str.isdecimal, numbers)) else list(range(len(rows)))


def _draw(axes: "Axes", rows: Sequence[Row]) -> None:
    scored = [(at, bpb, row) for at, row in zip(_numbers(rows), rows, strict=True) if (bpb := _score(row)) is not None]
    kept = [(at, bpb, row["description"]) for at, bpb, row in scored if _has(row, Status.KEEP)]
    rest = [(at, bpb) for at, bpb, row in scored if not _has(row, Status.KEEP)]
    last = max(_numbers(rows))
    size = 6 if last < 100 else 4
    places, values = [at for at, _ in rest], [bpb for _, bpb in rest]
    axes.plot(places, values, "o", color="0.75", markersize=size, label="discarded")
    places, values = [at for at, _, _ in kept], [bpb for _, bpb, _ in kept]
    axes.plot(places, values, "o", color="tab:green", markersize=size, label="kept")
    if kept:  # extend the line to the last attempt, kept or not
        best = list(accumulate(values, min))
        places, best = [*places, last], [*best, best[-1]]
        axes.step(places, best, where="post", color="tab:green", alpha=0.6, label="running minimum")
    axes.margins(y=0.1)
    _frame(axes, values, rest)
    _mark_unscored(axes, rows, size)
    right = max([1, last, *(at / LABEL_STARTS for at, _, _ in kept)])
    axes.set_xlim(-0.03 * right, 1.03 * right)
    _label(axes, kept)
    axes.set(xlabel="attempt", ylabel="val_bpb (lower is better)")
    axes.set_title(_title(rows[0]), loc="left", fontsize=10, pad=20, parse_math=False)
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.2)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.98), ncols=6, frameon=False, fontsize=8)


def _mark_unscored(axes: "Axes", rows: Sequence[Row], size: int) -> None:
    """Draw a cross at the upper edge for each attempt without a score."""
    unscored = [(at, row) for at, row in zip(_numbers(rows), rows, strict=True) if _score(row) is None]
    crashed = [at for at, row in unscored if _has(row, Status.CRASH)]
    stopped = [at for at, row in unscored if not _has(row, Status.CRASH)]
    bottom, top = axes.get_ylim()
    if unscored:
        axes.set_ylim(bottom, top + EDGE_MARGIN * (top - bottom))  # leave room above all points
    for places, colour, label in ((stopped, "0.6", "no score"), (crashed, "tab:red", "crashed")):
        if places:
            heights, along_x_only = [AT_EDGE] * len(places), axes.get_xaxis_transform()
            axes.plot(places, heights, "x", color=colour, markersize=size, transform=along_x_only, label=label)


def _frame(axes: "Axes", kept: Sequence[float], rest: Sequence[tuple[int, float]]) -> None:
    """Fit the axis to the kept attempts, and draw discards far above them as arrows at its edge."""
    span = max(kept) - min(kept) if len(kept) > 1 else 0.0
    ceiling = max(kept, default=0.0) + span
    above = [at for at, bpb in rest if bpb > ceiling]
    if span > 0 and above:
        axes.set_ylim(min([*kept, *(bpb for _, bpb in rest)]) - 0.1 * span, ceiling)
        just_below = [ceiling - 0.05 * span] * len(above)
        axes.plot(above, just_below, "^", color="0.75", label="off the scale")


def _label(axes: "Axes", kept: Sequence[tuple[int, float, str]]) -> None:
    """Write sloped titles, the largest gains first, and leave out a title that would overlap another."""
    axes.get_ylim()  # compute the limits before the positions below use them
    slope = math.radians(LABEL_DEGREES)
    gains = [math.inf, *(before[1] - after[1] for before, after in pairwise(kept))]
    taken: list[tuple[float, float]] = []
    for _, (at, bpb, title) in sorted(zip(gains, kept, strict=False), reverse=True):
        x, y = axes.transLimits.transform((at, bpb)) * PANEL_PT
        along, across = x * math.cos(slope) + y * math.sin(slope), y * math.cos(slope) - x * math.sin(slope)
        if any(abs(along - there) < LABEL_PT[0] and abs(across - line) < LABEL_PT[1] for there, line in taken):
            continue
        taken.append((along, across))
        text = shorten(title, LABEL_CHARS)
        label = axes.annotate(text, (at, bpb), textcoords="offset points", xytext=(4, 4), fontsize=7, parse_math=False)
        label.set(rotation=LABEL_DEGREES, rotation_mode="anchor")
