"""Write the rows of nights into the ledger, and leave all others as they are."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from agent.experiment import Night
from agent.files import check_plain, write_plain
from agent.records.ledger.columns import HEADER, tag_of
from agent.records.ledger.rendering import LedgerText

FIRST = ("commit", "\ufeffcommit")  # a spreadsheet puts a byte order mark before it
LedgerParts = list[tuple[str | None, LedgerText]]  # each the tag of adjacent rows, None of foreign ones


class LedgerFile:
    """Write a ledger, again and again: it is read only where another has written it meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._parts: LedgerParts = []

    def write(self, nights: Sequence[tuple[Night, LedgerText]]) -> None:
        """Write the rows of these nights from their first row's place on, all others unchanged."""
        is_ours = bool(self._stamp) and self._stamp == stamp_of(self._path)
        before = self._parts if is_ours else _parts_of(self._path)
        parts = arranged(before, {night.tag: lines for night, lines in nights})
        content = b"".join((f"{HEADER}\n".encode(), *(piece for _, lines in parts for piece in lines)))
        write_plain(self._path, content)
        self._stamp, self._parts = stamp_of(self._path), parts


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
        rows = ((tag_of(text), line + b"\n") for line, text in told if text.split("\t", 1)[0] not in FIRST)
        groups = groupby(rows, key=lambda row: row[0])
        return [(tag, [b"".join(line for _, line in group)]) for tag, group in groups]


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written; () where there is none."""
    with suppress(FileNotFoundError):
        now = path.stat()
        return now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino  # the first can be set back, the second cannot
    return ()
