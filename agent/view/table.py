"""Format a table as lines of text, in full for a pipe, or with columns left out and texts cut for a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import cells as widths

from agent.text import harmless
from agent.view.screen import shortened

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """Describe a column: its name, alignment, and how it gives way on a narrow terminal."""

    name: str
    right: bool = False  # whether to align to the right, as for numbers
    rank: int = 0  # the highest rank is left out first; 0 always stays
    least: int | None = None  # texts may be cut to this many places; None: never cut


def lines(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Return the header and one line a row; `width` is the terminal's in places, None for all columns in full.

    A column without any entry is left out unless its rank is 0.
    """
    cells = [[harmless(cell) for cell in row] for row in rows]
    filled = [at for at in range(len(columns)) if columns[at].rank == 0 or any(row[at] for row in cells)]
    natural = {at: max(cell_len(text) for text in (columns[at].name, *(row[at] for row in cells))) for at in filled}
    shown = natural if width is None else _fitting(columns, natural, width)
    table = [[column.name for column in columns], *cells]
    return [
        GAP.join(_padded(row[at], places, columns[at].right) for at, places in shown.items()).rstrip() for row in table
    ]


def _fitting(columns: Sequence[Column], natural: dict[int, int], width: int) -> dict[int, int]:
    """Return the width of each column that is shown; texts share the remaining places alike."""
    places = {at: min(whole, columns[at].least or whole) for at, whole in natural.items()}
    while (room := width - _total(places)) < 0 and (droppable := [at for at in places if columns[at].rank]):
        del places[max(droppable, key=lambda at: columns[at].rank)]
    while room > 0 and (cut := [at for at in places if places[at] < natural[at]]):
        for at in cut[:room]:
            places[at] += 1
        room -= len(cut[:room])
    return places


def _total(places: dict[int, int]) -> int:
    return sum(places.values()) + len(GAP) * (len(places) - 1)


def cell_len(text: str) -> int:
    """Return how many places a text takes on a terminal."""
    return len(text) if text.isascii() else widths.cell_len(text)  # of what harmless() leaves, each takes one


def _padded(text: str, places: int, right: bool) -> str:
    cut = shortened(text, places)
    blank = " " * (places - cell_len(cut))
    return blank + cut if right else cut + blank
