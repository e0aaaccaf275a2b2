"""Read the rows of the ledger again."""

import csv
from pathlib import Path

from agent.files import check_plain, read_plain
from agent.records.ledger.columns import Row, tag_of, text_of


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a ledger for display; cells that an older or foreign row lacks are empty."""
    check_plain(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        columns, *lines = [cells for cells in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if cells] or [[]]
    empty = dict.fromkeys(filter(None, columns), "")
    return [
        empty | {column: text_of(cell) for column, cell in zip(columns, cells, strict=False) if column}
        for cells in lines
    ]


def tags_in(path: Path) -> frozenset[str]:
    """Return the tags of the rows in a ledger on disk."""
    return frozenset(tag for line in read_plain(path).split("\n") if (tag := tag_of(line)))
