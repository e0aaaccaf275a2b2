"""results.tsv: one row an attempt, rendered from the journals, so that a person may delete it and lose nothing."""

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from agent.experiment import Attempt, History, Night, Score, short
from agent.experiment.chunks import SIZE, chunks_of
from agent.experiment.sizes import memory_mb, params_M
from agent.files import check_plain, read_plain, write_plain
from agent.judging.recent import numbered
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


# ---- writing ---------------------------------------------------------------------------------------------------------

LedgerText = Sequence[bytes]  # pieces of the file, each of whole lines
LedgerParts = list[tuple[str | None, LedgerText]]  # each the tag of adjacent rows, None of foreign ones
_written: dict[Path, tuple[tuple[int, ...], LedgerParts]] = {}  # by ledger: its stamp, its parts


def write(path: Path, nights: Sequence[tuple[Night, LedgerText]]) -> None:
    """Write the ledger: the rows of these nights from their first row's place on, all others unchanged.

    The file is read only where another has written it, and lines are rendered only where their attempts have changed.
    """
    stamp, parts = _written.get(path, ((), []))
    if not stamp or stamp != _stamp_of(path):
        parts = _parts_of(path)
    parts = arranged(parts, {night.tag: lines for night, lines in nights})
    content = b"".join((f"{HEADER}\n".encode(), *(piece for _, lines in parts for piece in lines)))
    write_plain(path, content)
    _written[path] = _stamp_of(path), parts


def arranged(parts: LedgerParts, nights: Mapping[str, LedgerText]) -> LedgerParts:
    """Put the lines of nights, by tag, in the place of their first part; those of new nights come at the end."""
    found: dict[str, LedgerText] = {}
    arranged: LedgerParts = []
    for tag, lines in parts:
        if tag is None or tag not in nights:
            arranged.append((tag, lines))
        elif tag not in found:
            found[tag] = nights[tag]
            arranged.append((tag, nights[tag]))
    return arranged + [(tag, lines) for tag, lines in nights.items() if tag not in found]


def _parts_of(path: Path) -> LedgerParts:
    """Read the parts of a ledger, without its header and blank lines."""
    check_plain(path)
    if not path.exists():
        return []
    with path.open("rb") as file:  # whose lines end with line feeds alone
        lines = (line.removesuffix(b"\n") for line in file)
        told = ((line, line.decode(errors="surrogateescape")) for line in lines if line)
        rows = ((tag_of(text), line + b"\n") for line, text in told if text.split("\t", 1)[0] != "commit")
        groups = groupby(rows, key=lambda row: row[0])
        return [(tag, [b"".join(line for _, line in group)]) for tag, group in groups]


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written; () where there is none."""
    with suppress(FileNotFoundError):
        now = path.stat()
        return now.st_mtime_ns, now.st_size, now.st_ino
    return ()


def rendered(night: Night, history: History) -> LedgerText:
    """Return the lines of all attempts that have a decision: those of each chunk of the history as one piece.

    They follow from the attempts of the chunk, and from the commits that these were made from.
    """
    found = []
    for chunk in chunks_of(history):
        parents = ((number, numbered(history, number)) for number in chunk.once(_parents))
        commits = tuple((number, None if one is None else one.commit) for number, one in parents)
        found.append(chunk.once(_Rendering(night, commits)))
    return found


def _parents(attempts: Sequence[Attempt]) -> list[int]:
    return sorted({one.parent for one in attempts if one.parent is not None})


@dataclass(frozen=True, slots=True)
class _Rendering:
    """Hold what the lines of attempts depend on beside themselves, and render them."""

    night: Night
    commits: tuple[tuple[int, str | None], ...]  # of their parents, by number

    def __call__(self, attempts: Sequence[Attempt]) -> bytes:
        commits = dict(self.commits)
        lines = (_line(self.night, one, commits.get(one.parent or 0)) for one in attempts if one.decision is not None)
        return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


_lines: dict[int, tuple[Night, Attempt, str | None, str]] = {}  # of a chunk that changes, all but one stay


def _line(night: Night, attempt: Attempt, parent: str | None) -> str:
    """Return the line of an attempt; render it only where it is not the one that was rendered last by its number."""
    at = attempt.number % (2 * SIZE)
    known = _lines.get(at)
    if known is None or known[1] is not attempt or known[2] != parent or known[0] != night:
        known = _lines[at] = night, attempt, parent, row_of(night, attempt, parent)
    return known[3]


# ---- reading ---------------------------------------------------------------------------------------------------------


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


# ---- a row -----------------------------------------------------------------------------------------------------------


def row_of(night: Night, attempt: Attempt, parent: str | None) -> str:
    """Return the line of an attempt; parent: the commit that it was made from, if it is none of attempt 0's."""
    parent = night.base if attempt.parent is None else parent
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


def _mean(scores: Iterable[Score | None]) -> float | None:
    found = [score.val_bpb for score in scores if score is not None and score.val_bpb is not None]
    return statistics.fmean(found) if found else None


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
