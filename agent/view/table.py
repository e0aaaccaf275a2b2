"""A table as lines of text: whole where it is piped, and on a terminal without what there is no room for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from agent.text import harmless, shorten

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    right: bool = False  # numbers end at one place
    rank: int = 0  # where room is short the highest is left out first; 0 stays
    least: int | None = None  # a text may be cut down to so many places; None: it is shown whole or not at all


def lines(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """The header and one line a row; width: of the terminal, None where everything is to be shown.

    A column without any entry is left out.
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
    """Places of each column that is shown; texts, from the left on, share what the others leave."""
    places = {at: min(whole, columns[at].least or whole) for at, whole in natural.items()}
    while (room := width - _total(places)) < 0 and (droppable := [at for at in places if columns[at].rank]):
        del places[max(droppable, key=lambda at: columns[at].rank)]
    for at in places:
        more = min(max(room, 0), natural[at] - places[at])
        places[at] += more
        room -= more
    return places


def _total(places: dict[int, int]) -> int:
    return sum(places.values()) + len(GAP) * (len(places) - 1)


def _padded(text: str, places: int, right: bool) -> str:
    most = places
    while cell_len(cut := shorten(text, most)) > places:  # of wide characters fewer fit
        most -= 1
    blank = " " * (places - cell_len(cut))
    return blank + cut if right else cut + blank
