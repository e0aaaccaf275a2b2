"""results.tsv: one row for each attempt of every night, made from the journals; rows of others are left as they are.

A person may delete the file: the rows of journals that are here come back. A person may also save it from a
spreadsheet: it is read by its header.
"""

import csv
import io
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from agent.errors import NightError
from agent.experiment import History, Night, Summary, memory_gb, short
from agent.files import check_plain, put_beside, write_plain
from agent.lab.corpus import say
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.summary import gain_bpb, speed_of
from agent.text import ABSURD, SCORE_DECIMALS, digits, harmless, plain_lines, saved_like

COLUMNS = (
    *("commit", "val_bpb", "memory_gb", "status", "description"),  # columns that every tool of this family reads
    *("attempt", "tag", "branch", "parent", "reason", "seeds", "val_bpb_std", "tokens_M", "params_M"),
    *("train_s", "wall_s", "proposer", "protocol", "device", "started"),
    *("gain_bpb", "sure"),
    # separate columns: a row's val_bpb stays as the night recorded it
    *("confirmation_bpb", "confirmation_seeds", "holdout_bpb"),
    *("steps", "speed"),
)
Row = dict[str, str]  # one line by column; a foreign one may lack some of ours, and have others
STATUS = COLUMNS.index("status")
STATUSES = ("keep", "discard", "crash")
NAMES = {name.lower(): name for name in COLUMNS}
SEPARATORS = "\t,;"  # spreadsheets write the last two
BRANCH = re.compile(r"experiments/[^-]*-(?P<tag>.+)")
UNREADABLE = re.compile(r'^"|[\t\n]')  # characters that a cell without quotes cannot have
# A spreadsheet reads these as a formula, which may call programs: the first character, half or full width.
FORMULA = re.compile(r"(?!-?\d+(\.\d+)?$)[=+\-@＝＋－＠]", re.ASCII)
TEXT_MARK = "'"  # the spreadsheet's own sign that a cell is text
csv.field_size_limit(sys.maxsize)  # a tool may have left a cell of more than 128 kB


def write_results(
    place: Place,
    live: tuple[Night, History] | None = None,
    say: Callable[[str], object] = say,
    *,
    to_read: bool = False,
) -> str:
    """Render the rows of every journal here into results.tsv; keep the rows of a journal that cannot be read.

    Return its text. to_read: that is enough where the file cannot be written, as on a full or a read-only disk.

    live: the running night and its attempts: only its rows are rendered, unless the others' are gone. say: told where a
    file that could not be read whole was kept beside the new one.
    """
    place.check_own_results()
    before = read_results(place.results)
    table = Table.of(before)
    nights: dict[str, tuple[Night, History]] = {}
    if live is None or not table.rows:
        read = (_read(place, tag) for tag in place.tags())
        nights = {night.tag: (night, history) for night, history in filter(None, read)}
    if live is not None:
        nights[live[0].tag] = live
    in_order = sorted(nights.values(), key=lambda pair: pair[0].started)
    after = table.arranged(in_order)
    content = saved_like(after, before).encode(errors="surrogateescape")
    try:
        if not table.is_whole:
            aside = put_beside(place.results, "before-rewrite")
            say(f"not every line of {place.results} was a row of a table, so the file is kept as it was in {aside}")
        if not place.results.exists() or place.results.read_bytes() != content:
            write_plain(place.results, content)
    except OSError:
        if not to_read:
            raise
    return after


def _read(place: Place, tag: str) -> tuple[Night, History] | None:
    """Return the night of this tag; None if its journal cannot be read, or is a copy of another night's."""
    with suppress(NightError, OSError), Journal.read(place.journal(tag)) as journal:
        night = journal.night()
        return (night, journal.attempts()) if night.tag == tag else None
    return None


def rows_of(night: Night, history: History) -> list[Row]:
    """Return the rows of all attempts that have a decision."""
    tag, branch = cell_of(night.tag), cell_of(short(night.branch))
    protocol, device = cell_of(night.protocol), cell_of(night.device)
    decimals = None if night.options.metric else SCORE_DECIMALS
    rows = []
    for attempt in history:
        decision, summary, confirming = attempt.decision, attempt.summary or Summary(), attempt.confirmation_runs()
        if decision is None:
            continue
        parent = None if attempt.parent is None else history[attempt.parent]
        base = night.base if parent is None else parent.commit or ""
        peak_gb, gained_bpb = memory_gb(night, attempt), gain_bpb(attempt, parent)
        cells = (
            (attempt.commit or "")[:7],
            _number(attempt.shown_bpb, decimals),
            _number(peak_gb, 3 if peak_gb is not None and peak_gb < 1 else 1),
            attempt.status or "",
            cell_of(attempt.title),
            str(attempt.number),
            tag,
            branch,
            base[:7],
            cell_of(decision.reason),
            str(attempt.seeds),
            _number(statistics.stdev(attempt.scores_bpb) if len(attempt.scores_bpb) > 1 else None, decimals),
            _number(summary.total_tokens_M, 3),
            _number(None if attempt.params is None else attempt.params / 1e6, 3),
            _number(summary.training_seconds, 1),
            _number(sum(run.wall_s for run in attempt.counted_runs), 1),
            cell_of(attempt.proposer),
            protocol,
            device,
            cell_of(attempt.started),
            "" if gained_bpb is None else digits(gained_bpb, decimals),
            _number(decision.sure, 2),
            _number(_mean(run.score.val_bpb for run in confirming if run.score is not None), decimals),
            str(len(confirming)) if confirming else "",
            _number(_mean(run.holdout_bpb for run in confirming), 6),
            _number(attempt.steps, 0),
            _number(speed_of(attempt, parent), 2),
        )
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
    return rows


def _mean(scores: Iterable[float | None]) -> float | None:
    scored = [val_bpb for val_bpb in scores if val_bpb is not None]
    return statistics.fmean(scored) if scored else None


def _number(value: float | None, decimals: int | None) -> str:
    return digits(value, decimals) if value is not None and abs(value) < ABSURD else ""


# ---- reading, also rows of other tools -------------------------------------------------------------------------------


def read_results(path: Path) -> str:
    """Return the text of a results file, "" where there is none; bytes that are no text survive write_plain."""
    check_plain(path)
    content = path.read_bytes() if path.exists() else b""
    with suppress(UnicodeDecodeError):
        return content.decode(json.detect_encoding(content))  # spreadsheets write UTF-16, too
    return content.decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a results file by column, in whatever order a spreadsheet has put the columns."""

    rows: tuple[Row, ...]
    own: tuple[str, ...]  # columns that this program does not know
    is_whole: bool  # no part of the text is left out

    @classmethod
    def of(cls, text: str) -> "Table":
        """Read a text by its header, which may stand anywhere: a program may have sorted the lines.

        Without a header, lines with a status in its place are rows.
        """
        lines = _lines(plain_lines(text).replace("\0", ""))
        columns = next(filter(None, map(_header, lines)), None)
        rows, own, is_whole = dict[object, Row](), list[str](), "\0" not in text
        for cells in lines:
            if header := _header(cells):
                columns = header
                own += [name for name, cell in zip(header, cells, strict=True) if cell.strip()]
            elif columns is None and (len(cells) <= STATUS or cells[STATUS].strip().lower() not in STATUSES):
                is_whole = False
            else:
                names = columns or COLUMNS
                names += tuple(f"column_{at + 1}" for at in range(len(names), len(cells)))
                pairs = zip(names, cells, strict=False)
                row = {name: cell for name, cell in pairs if cell.strip() or name in COLUMNS}
                rows[tuple(row.items()) if row.get("tag") else len(rows)] = row  # the very row of a night stands once
        named = dict.fromkeys(chain(own, *rows.values()))
        return cls(tuple(rows.values()), tuple(name for name in named if name not in COLUMNS), is_whole)

    def arranged(self, nights: Iterable[tuple[Night, History]]) -> str:
        """Return the text with the rows of nights in the place of their first row; new ones at its end.

        What a person wrote beside a row stays beside it, or where no row is about that attempt, in the row itself. The
        tag is the date, so another clone's night may have it, too: a row that is no attempt's of the night stays.
        """
        ours = dict[str, list[Row]]()
        known = set[tuple[str, str, str]]()  # of the attempts: tag, column and cell
        for night, history in nights:
            ours[night.tag] = rows_of(night, history)
            for attempt in history:
                known.add((night.tag, "started", cell_of(attempt.started)))
                known |= {(night.tag, "commit", attempt.commit[:7])} if attempt.commit else set()
        of_attempt = {(tag, number_of(row["attempt"])): row for tag, rows in ours.items() for row in rows}
        arranged, rest = list[Row](), dict(ours)
        for row in self.rows:
            tag, own = tag_of(row), {name: cell for name, cell in row.items() if name in self.own}
            arranged += rest.pop(tag, [])
            new = of_attempt.get((tag, number_of(row.get("attempt", ""))))
            if not any((tag, name, row.get(name, "").strip()) in known for name in ("commit", "started")):
                arranged.append(row)
            elif new is not None and all(new.get(name, cell) == cell for name, cell in own.items()):
                new.update(own)
            elif own:
                arranged.append(row)
        columns = (*COLUMNS, *self.own)
        header = {name: name for name in columns}
        return "".join(_line(columns, row) for row in (header, *arranged, *chain(*rest.values())))


def _lines(text: str) -> list[list[str]]:
    """Split a text into the cells of its lines, by the first separator that gives a header; by tabs if none does."""
    for separator in SEPARATORS:
        lines = _split(text, separator)
        if any(map(_header, lines)):
            return lines
    return _split(text, SEPARATORS[0])


def _split(text: str, separator: str) -> list[list[str]]:
    """Split a text as spreadsheets write it, with quotes around cells; else as other tools do, with plain quotes."""
    lines: list[list[str]] = []
    with suppress(csv.Error):
        lines = list(csv.reader(io.StringIO(text), delimiter=separator, strict=True))
    if not lines or any("\n" in cell and cell.count(separator) >= STATUS for cell in chain(*lines)):
        lines = list(csv.reader(io.StringIO(text), delimiter=separator, quoting=csv.QUOTE_NONE))
    return [cells for cells in lines if any(map(str.strip, cells))]


def _header(cells: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns if this line is a header with distinct names; else nothing."""
    if "val_bpb" not in " ".join(cells).lower():  # nearly all lines end here, quickly
        return ()
    names = [NAMES.get(name.lower(), name) for name in (cell.strip("\ufeff ") for cell in cells)]
    if not {"commit", "val_bpb"} <= set(names):
        return ()
    return tuple(
        name if name and name not in names[:at] else f"{name or 'column'}_{at + 1}" for at, name in enumerate(names)
    )


def _line(columns: Sequence[str], row: Row) -> str:
    """Write a row up to its last cell, or whole where a person has added columns, as spreadsheets do.

    Quotes are only where a cell could not be read without them.
    """
    is_ours = columns == COLUMNS
    last = max(at for at, name in enumerate(columns) if name in row or not is_ours)
    return "\t".join(_quoted(row.get(name, "")) for name in columns[: last + 1]) + "\n"


def _quoted(cell: str) -> str:
    return '"{}"'.format(cell.replace('"', '""')) if UNREADABLE.search(cell) else cell


def rows_in(text: str) -> list[Row]:
    """Return the rows in the text of a results file for display, with all columns and the tag of the night."""
    table = Table.of(text.encode(errors="surrogateescape").decode(errors="replace"))
    empty = dict.fromkeys((*COLUMNS, *table.own), "")
    return [
        empty | {name: text_of(cell.strip()) for name, cell in row.items()} | {"tag": tag_of(row)} for row in table.rows
    ]


def tags_in(path: Path) -> frozenset[str]:
    """Return the tags of the rows in a results file on disk."""
    return frozenset(filter(None, map(tag_of, Table.of(read_results(path)).rows)))


def tag_of(row: Row) -> str:
    """Return the tag of a row's night, "" without one.

    A spreadsheet turns nov20 into a date and 007 into a number, which then begin with a capital or a digit. The branch
    has the tag, too.
    """
    tag, of_branch = row.get("tag", "").strip(), BRANCH.match(row.get("branch", "").strip())
    return of_branch["tag"] if of_branch and not tag[:1].islower() else tag


def number_of(cell: str) -> float | None:
    """Return a cell's number; None if it has none, or an absurd one, as rows may come from other tools."""
    try:
        value = float(cell.replace(",", "."))  # half of the world's spreadsheets write a decimal comma
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
