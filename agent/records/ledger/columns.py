"""The columns of the ledger, and how a text or a number is put into a cell and got out again."""

import re

from agent.amounts import ABSURD
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


def number_of(cell: str) -> float | None:
    """Return a cell's number; None if it has none, or an absurd one, as rows may come from other tools."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) <= ABSURD else None


def tag_of(line: str) -> str | None:
    cells = line.split("\t", TAG + 1)
    return cells[TAG] if len(cells) > TAG and cells[0] != "commit" else None


def cell_of(text: str) -> str:
    """Make a text fit for one cell: line breaks and tabs become spaces, double quotes become single ones."""
    cell = harmless(" ".join(text.split())).replace('"', "'")
    return TEXT_MARK + cell if FORMULA.match(cell) else cell


def text_of(cell: str) -> str:
    """Return the text of a cell, without the mark of a spreadsheet."""
    return cell[1:] if cell[:1] == TEXT_MARK and FORMULA.match(cell[1:]) else cell
