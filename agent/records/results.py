"""results.tsv: one row for each attempt of every night, made from the journals; rows of others are left as they are.

A person may delete the file and lose nothing that a journal here holds.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent.errors import NightError
from agent.experiment import History, Night, Summary, memory_gb, short
from agent.files import check_plain, read_plain, write_plain
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.summary import gain_bpb
from agent.text import ABSURD, harmless

COLUMNS = (
    *("commit", "val_bpb", "memory_gb", "status", "description"),  # what every tool of this family reads
    *("attempt", "tag", "branch", "parent", "reason", "seeds", "val_bpb_std", "tokens_M", "params_M"),
    *("train_s", "wall_s", "source", "protocol", "device", "started"),
    *("gain_bpb", "sure"),
    *("dawn_bpb", "dawn_seeds", "holdout_bpb"),  # so that a row's val_bpb stays what the night recorded
)
Row = dict[str, str]  # one line by column
HEADER = "\t".join(COLUMNS)
TAG = COLUMNS.index("tag")
FIRST = ("commit", "\ufeffcommit")  # cells of a header: a spreadsheet puts a byte order mark before it
# What a spreadsheet reads as a formula, which may call programs: by its first character, half or full width.
FORMULA = re.compile(r"(?!-?\d+(\.\d+)?$)[=+\-@＝＋－＠]", re.ASCII)
LINE_END = re.compile(r"\r\n|\r|\n")  # no other sign that splitlines() takes for one: a title may hold it
TEXT_MARK = "'"  # the spreadsheet's own sign that a cell is text


def write_ledger(place: Place, live: tuple[Night, History] | None = None) -> None:
    """Render the rows of every journal here into results.tsv; keep the rows of a journal that cannot be read.

    live: the running night and its attempts: only its rows are rendered, unless the file is gone.
    """
    place.check_own_ledger()
    before = read_plain(place.ledger)
    nights: dict[str, tuple[Night, History]] = {}
    if live is None or not before:
        read = (_read(place, tag) for tag in place.tags())
        nights = {night.tag: (night, history) for night, history in filter(None, read)}
    if live is not None:
        nights[live[0].tag] = live
    in_order = sorted(nights.values(), key=lambda pair: pair[0].started)
    after = arranged(before, {night.tag: lines_of(night, history) for night, history in in_order})
    if after != before:
        write_plain(place.ledger, after)


def _read(place: Place, tag: str) -> tuple[Night, History] | None:
    """Return the night of this tag; None if its journal cannot be read, or is a copy of another night's."""
    with suppress(NightError, OSError), Journal.read(place.journal(tag)) as journal:
        night = journal.night()
        return (night, journal.attempts()) if night.tag == tag else None
    return None


def arranged(text: str, nights: Mapping[str, Sequence[str]]) -> str:
    """Put the lines of nights, by tag, in the place of their first row in a ledger's text; new ones come at its end."""
    lines, rest = [HEADER], dict(nights)
    for line in text.split("\n"):
        tag = tag_of(line)
        if tag in rest:
            lines += rest.pop(tag)
        elif line and tag not in nights and line.split("\t", 1)[0] not in FIRST:
            lines.append(line)
    return "".join(f"{line}\n" for line in (*lines, *(line for rows in rest.values() for line in rows)))


def lines_of(night: Night, history: History) -> list[str]:
    """Return the lines of all attempts that have a decision."""
    tag, branch = cell_of(night.tag), cell_of(short(night.branch))
    protocol, device = cell_of(night.protocol), cell_of(night.device)
    lines = []
    for attempt in history:
        decision, summary, at_dawn = attempt.decision, attempt.summary or Summary(), attempt.dawn_runs()
        if decision is None:
            continue
        parent = None if attempt.parent is None else history[attempt.parent]
        base = night.base if parent is None else parent.commit or ""
        peak_gb, gained_bpb = memory_gb(night, attempt), gain_bpb(attempt, parent)
        cells = (
            (attempt.commit or "")[:7],
            _number(attempt.val_bpb, 6),
            _number(peak_gb, 3 if peak_gb is not None and peak_gb < 1 else 1),
            attempt.status or "",
            cell_of(attempt.title),
            str(attempt.number),
            tag,
            branch,
            base[:7],
            cell_of(decision.reason),
            str(attempt.seeds),
            _number(statistics.stdev(attempt.scores_bpb) if len(attempt.scores_bpb) > 1 else None, 6),
            _number(summary.total_tokens_M, 3),
            _number(None if attempt.params is None else attempt.params / 1e6, 3),
            _number(summary.training_seconds, 1),
            _number(sum(run.wall_s for run in attempt.counted_runs), 1),
            cell_of(attempt.source),
            protocol,
            device,
            cell_of(attempt.started),
            "" if gained_bpb is None else f"{gained_bpb:.6f}",
            _number(decision.sure, 2),
            _number(_mean(run.val_bpb for run in at_dawn), 6),
            str(len(at_dawn)) if at_dawn else "",
            _number(_mean(run.holdout_bpb for run in at_dawn), 6),
        )
        lines.append("\t".join(cells))
    return lines


def _mean(scores: Iterable[float | None]) -> float | None:
    scored = [val_bpb for val_bpb in scores if val_bpb is not None]
    return statistics.fmean(scored) if scored else None


def _number(value: float | None, decimals: int) -> str:
    return f"{value:.{decimals}f}" if value is not None and 0 <= value < ABSURD else ""


# ---- reading, also rows of other tools -------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a ledger for display; cells that an older or foreign row lacks are empty."""
    check_plain(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        # not by csv, which refuses a row of another tool with a cell of more than 128 kB
        columns, *lines = [line.split("\t") for line in LINE_END.split(file.read()) if line] or [[]]
    empty = dict.fromkeys(filter(None, columns), "")
    return [
        empty | {column: text_of(cell) for column, cell in zip(columns, cells, strict=False) if column}
        for cells in lines
    ]


def tags_in(path: Path) -> frozenset[str]:
    """Return the tags of the rows in a ledger on disk."""
    return frozenset(tag for line in read_plain(path).split("\n") if (tag := tag_of(line)))


def tag_of(line: str) -> str | None:
    cells = line.split("\t", TAG + 1)
    return cells[TAG] if len(cells) > TAG and cells[0] not in FIRST else None


def number_of(cell: str) -> float | None:
    """Return a cell's number; None if it has none, or an absurd one, as rows may come from other tools."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) <= ABSURD else None


def cell_of(text: str) -> str:
    """Make a text fit for one cell: line breaks and tabs become spaces, double quotes become single ones."""
    cell = harmless(" ".join(text.split())).replace('"', "'")
    return TEXT_MARK + cell if FORMULA.match(cell) else cell


def text_of(cell: str) -> str:
    """Return the text of a cell, without the mark of a spreadsheet."""
    return cell[1:] if cell[:1] == TEXT_MARK and FORMULA.match(cell[1:]) else cell
