"""Rows of results.tsv, and a file of them."""

from collections.abc import Sequence

from agent.experiment import History, Night
from agent.files import read_plain, throwaway_folder
from agent.records.ledger.columns import COLUMNS
from agent.records.ledger.rendering import rendered
from agent.records.ledger.writing import LedgerFile


def rows(night: Night, history: History) -> list[str]:
    return b"".join(rendered(night, history)).decode().splitlines()


def render(before: str, nights: Sequence[tuple[Night, History]]) -> str:
    """Return a ledger's text after these nights were written to it."""
    with throwaway_folder() as folder:
        (folder / "results.tsv").write_bytes(before.encode(errors="surrogateescape"))
        LedgerFile(folder / "results.tsv").write([(night, rendered(night, history)) for night, history in nights])
        return read_plain(folder / "results.tsv")


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, line.split("\t"), strict=True))
