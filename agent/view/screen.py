"""Print lines and tables to a terminal or a pipe, and go on where their reader disappears."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from agent.text import CUT_WITH, harmless

LABEL = re.compile(r" *\w+ {2,}(?=\S)")  # as in "  script   /home/…"
WORD = re.compile(r"\s*(?:(?:val_bpb|σ|gain|±) )?\S+")  # a number stays with its name


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines without wrapping: a terminal folds long ones itself, and piped output stays whole."""
    console = Console()
    if not console.is_terminal:
        print("\n".join(line.plain for line in lines))  # rich takes seconds to lay out thousands of lines
        return
    for line in lines:
        console.print(line, soft_wrap=True)


def print_folded(lines: Iterable[str], heads: re.Pattern[str] | None = None, *, stderr: bool = False) -> None:
    """Print sentences, folded between words on a terminal; a piped one stays on one line.

    heads: the words at the beginning of a line that a terminal shows in bold.
    """
    console = Console(stderr=stderr)
    for line in lines:
        if not console.is_terminal:
            print(line, file=console.file)
            continue
        text = Text(line)
        if heads is not None and (head := heads.match(line)) is not None:
            text.stylize("bold", 0, head.end())
        for part in folded(text, console.width):
            console.print(part, soft_wrap=True)


def print_next(commands: Mapping[str, str], before: Iterable[str] = ()) -> None:
    """Print the commands that come next, each with what it is for: beside it, or below where a terminal is narrow.

    A command stays on one line, so that it can be copied. before: commands that need no words, and come first.
    """
    width, columns = max(map(len, commands)), terminal_width()
    is_beside = columns is None or all(2 + width + 2 + cell_len(what) <= columns for what in commands.values())
    lines = [Text("next:"), *(Text(f"  {command}") for command in before)]
    for command, what in commands.items():
        if is_beside:
            lines.append(Text.assemble(f"  {command:<{width}}  ", (what, "dim")))
        else:
            lines += [Text(f"  {command}"), *folded(Text(f"      {what}", "dim"), columns or 0)]
    print_lines(lines)


def shown(text: str) -> str:
    """Return foreign text as one line for a terminal: nothing in it moves the cursor, tabs included."""
    return harmless(" ".join(text.split()))


def folded(line: Text, width: int) -> list[Text]:
    """Break a line between words, but do not break a word that no line has room for, such as a long path.

    Later lines begin below the text behind the first one's label, or else two columns to the right of the first.
    """
    label = LABEL.match(line.plain)
    indent = " " * (len(label[0]) if label else len(line.plain) - len(line.plain.lstrip()) + 2)
    cuts, used = [], 0
    for piece in WORD.finditer(line.plain):
        needed, alone = cell_len(piece[0]), len(indent) + cell_len(piece[0].lstrip())
        if piece.start() > 0 and used + needed > width >= alone:
            cuts.append(piece.start())
            used = alone
        else:
            used += needed
    first, *later = line.divide(cuts)
    return [first, *(Text.assemble(indent, part[len(part) - len(part.plain.lstrip()) :]) for part in later)]


def shortened(text: str, columns: int) -> str:
    """Shorten a text to so many columns at the end of a word, with an ellipsis as the last character.

    A word longer than half of the columns is cut.
    """
    if cell_len(text) <= columns:
        return text
    if columns < 1:
        return ""
    kept = set_cell_size(text, columns - 1)
    words = kept.rpartition(" ")[0] if text[len(kept.rstrip()) :][:1] != " " else kept
    if cell_len(words) >= columns // 2:
        kept = words
    return f"{kept.rstrip(CUT_WITH)}…"


def terminal_width() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere."""
    console = Console()
    return console.width if console.is_terminal else None


class _Steadfast:
    """Wrap a stream whose reader may disappear, as a closed terminal does; drop the output from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard_output(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard_output(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def steadfast(stream: TextIO) -> TextIO:
    """Return the stream in a form that ignores a missing reader, so that the night goes on."""
    return cast(TextIO, _Steadfast(stream))


def discard_output(stream: TextIO) -> None:
    """Send a stream's output to /dev/null: Python writes its buffer at exit, and would fail again without a reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


# ---- tables ----------------------------------------------------------------------------------------------------------

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """Describe a column: its name, alignment, and how it gives way on a narrow terminal."""

    name: str
    right: bool = False  # whether to align to the right, as for numbers
    rank: int = 0  # the highest rank is left out first; 0 always stays
    least: int | None = None  # texts may be cut to this many places; None: never cut


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Return the header and one line a row; `width` is the terminal's in places, None for all columns in full.

    A column without any entry is left out unless its rank is 0.
    """
    cells = [[harmless(cell) for cell in row] for row in rows]
    filled = [at for at in range(len(columns)) if columns[at].rank == 0 or any(row[at] for row in cells)]
    natural = {at: max(places_of(text) for text in (columns[at].name, *(row[at] for row in cells))) for at in filled}
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


def places_of(text: str) -> int:
    """Return how many places a text takes on a terminal."""
    return len(text) if text.isascii() else cell_len(text)  # of what harmless() leaves, each takes one


def _padded(text: str, places: int, right: bool) -> str:
    cut = shortened(text, places)
    blank = " " * (places - places_of(cut))
    return blank + cut if right else cut + blank
