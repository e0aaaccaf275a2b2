"""results.tsv: one row an attempt, rendered from the journals, so that a person may delete it and lose nothing."""

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.experiment import Attempt, History, Night, Score, short
from agent.files import check_plain, read_plain
from agent.text import harmless

COLUMNS = (
    *("commit", "val_bpb", "memory_gb", "status", "description"),  # what every tool of this family reads
    *("attempt", "tag", "branch", "parent", "reason", "seeds", "val_bpb_std", "tokens_M", "params_M"),
    *("train_s", "wall_s", "source", "protocol", "device", "started"),
    *("gain_bpb", "sure"),  # at the end, for the rows of nights that were before there were any
    *("dawn_bpb", "dawn_seeds", "holdout_bpb"),  # so that a row's val_bpb stays what the night recorded
)
Row = dict[str, str]  # one line by column
HEADER = "\t".join(COLUMNS)
TAG = COLUMNS.index("tag")
# What a spreadsheet reads as a formula, which may call programs: by its first character, half or full width.
FORMULA = re.compile(r"(?!-?\d+(\.\d+)?$)[=+\-@＝＋－＠]", re.ASCII)
TEXT_MARK = "'"  # the spreadsheet's own sign that a cell is text
ABSURD = 1e9  # no gigabytes, millions or seconds of a run are as many; a script may claim what it likes


def render(before: str, nights: Sequence[tuple[Night, History]]) -> str:
    """Return the ledger's text: the rows of these nights from their first row's place on, all others unchanged."""
    blocks = {night.tag: rows(night, history) for night, history in nights}
    rendered = set(blocks)
    lines = [HEADER]
    for line in before.split("\n"):
        tag = tag_of(line)
        if tag in blocks:
            lines += blocks.pop(tag)
        elif line and tag not in rendered and line.split("\t", 1)[0] != "commit":
            lines.append(line)
    for block in blocks.values():
        lines += block
    return "\n".join(lines) + "\n"


def rows(night: Night, history: History) -> list[str]:
    """Return one line for every attempt that has a decision.

    The line of an attempt is rendered again only where the attempt is another object than at the last call: a long
    night has thousands of lines, and each step changes one or two of them.
    """
    known = _rendered.get(night, {})
    found: dict[int, _Line] = {}
    commits = {one.number: one.commit for one in history}
    for attempt in history:
        if attempt.decision is not None:
            parent = night.base if attempt.parent is None else commits.get(attempt.parent)
            line = known.get(attempt.number)
            if line is None or line.attempt is not attempt or line.parent != parent:
                line = _Line(attempt, parent, _line(night, attempt, parent))
            found[attempt.number] = line
    _rendered[night] = found
    return [line.text for line in found.values()]


@dataclass(frozen=True, slots=True)
class _Line:
    """Hold the line of an attempt and everything that it was rendered from, apart from the night."""

    attempt: Attempt
    parent: str | None  # its commit
    text: str


_rendered: dict[Night, dict[int, _Line]] = {}


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a ledger for display; cells that an older or foreign row lacks are empty."""
    check_plain(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        columns, *lines = [cells for cells in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if cells] or [[]]
    empty = dict.fromkeys(filter(None, columns), "")
    return [
        empty | {column: _unmarked(cell) for column, cell in zip(columns, cells, strict=False) if column}
        for cells in lines
    ]


def number_of(cell: str) -> float | None:
    """Return a cell's number; None if it has none, or an absurd one, as rows may come from other tools."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) <= ABSURD else None


def tags_in(path: Path) -> frozenset[str]:
    """Return the tags of the rows in a ledger on disk."""
    return frozenset(tag for line in read_plain(path).split("\n") if (tag := tag_of(line)))


def tag_of(line: str) -> str | None:
    cells = line.split("\t", TAG + 1)
    return cells[TAG] if len(cells) > TAG and cells[0] != "commit" else None


def _line(night: Night, attempt: Attempt, parent: str | None) -> str:
    summary, decision, at_dawn = attempt.summary, attempt.decision, attempt.dawn_runs()
    cells: Mapping[str, str] = {
        "commit": (attempt.commit or "")[:7],
        "val_bpb": _number(attempt.val_bpb, 6),
        "memory_gb": _gigabytes(memory_mb(night, attempt)),
        "status": attempt.status or "",
        "description": attempt.proposal.title,
        "attempt": str(attempt.number),
        "tag": night.tag,
        "branch": short(night.branch),
        "parent": (parent or "")[:7],
        "reason": decision.words if decision else "",
        "seeds": str(attempt.seeds),
        "val_bpb_std": _number(attempt.val_bpb_std, 6),
        "tokens_M": _number(summary.total_tokens_M if summary else None, 3),
        "params_M": _number(params_M(attempt), 3),
        "train_s": _number(summary.training_seconds if summary else None, 1),
        "wall_s": _number(sum(run.wall_s for run in attempt.counted_runs), 1),
        "source": attempt.proposal.source,
        "protocol": night.protocol,
        "device": night.device,
        "started": attempt.started,
        "gain_bpb": "" if decision is None or decision.gain_bpb is None else f"{decision.gain_bpb:.6f}",
        "sure": _number(decision.sure if decision else None, 2),
        "dawn_bpb": _number(_mean(run.score for run in at_dawn), 6),
        "dawn_seeds": str(len(at_dawn)) if at_dawn else "",
        "holdout_bpb": _number(_mean(run.holdout for run in at_dawn), 6),
    }
    return "\t".join(_clean(cells[column]) for column in COLUMNS)


def params_M(attempt: Attempt) -> float | None:  # noqa: N802, the name of the column
    """Return millions of parameters: counted in the saved weights, else as the script says."""
    if attempt.weights is not None:
        return attempt.weights.params / 1e6
    return attempt.summary.num_params_M if attempt.summary else None


def _mean(scores: Iterable[Score | None]) -> float | None:
    found = [score.val_bpb for score in scores if score is not None and score.val_bpb is not None]
    return statistics.fmean(found) if found else None


def memory_mb(night: Night, attempt: Attempt) -> float | None:
    """Return the peak memory that the script reports, else the peak that the harness measured of its processes.

    The harness does not see the memory of a CUDA device, so without the script's report it is unknown there.
    """
    said_mb = attempt.summary.peak_vram_mb if attempt.summary else None
    if said_mb is not None and 0 < said_mb < ABSURD:
        return said_mb
    peaks = [run.peak_bytes for run in attempt.done_runs if run.peak_bytes]
    return max(peaks) / 2**20 if peaks and night.device_kind != "cuda" else None


def _number(value: float | None, decimals: int) -> str:
    return f"{value:.{decimals}f}" if value is not None and 0 <= value < ABSURD else ""


def _gigabytes(peak_mb: float | None) -> str:
    """Format gigabytes with one decimal, or with three if one would show zero."""
    gigabytes = None if peak_mb is None else peak_mb / 1024
    return _number(gigabytes, 3 if gigabytes is not None and 0 < gigabytes < 0.05 else 1)


def _clean(text: str) -> str:
    """Make a text fit for one cell: line breaks and tabs become spaces, double quotes become single ones."""
    cell = harmless(" ".join(text.split())).replace('"', "'")
    return TEXT_MARK + cell if FORMULA.match(cell) else cell


def _unmarked(cell: str) -> str:
    return cell[1:] if cell[:1] == TEXT_MARK and FORMULA.match(cell[1:]) else cell
