"""Rows of results.tsv, and a file of them."""

from collections.abc import Sequence
from pathlib import Path

from agent.experiment import History, Night
from agent.files import read_plain, write_plain
from agent.records.results import COLUMNS, arranged, lines_of


def render(before: str, nights: Sequence[tuple[Night, History]]) -> str:
    """Return a ledger's text after these nights were written to it."""
    return arranged(before, {night.tag: lines_of(night, history) for night, history in nights})


def put(path: Path, *nights: tuple[Night, History]) -> None:
    """Write these nights into a ledger."""
    write_plain(path, render(read_plain(path), nights))


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, line.split("\t"), strict=True))
