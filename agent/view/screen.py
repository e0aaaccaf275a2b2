"""Print lines and tables to a terminal or a pipe, and go on where their reader disappears."""

import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from agent.text import harmless, harmless_lines, shorten

LABEL = re.compile(r" *\w+(?: \w+)? {2,}(?=\S)| {4,}(?=\S)")  # "  script   /home/…", and continued lines
WORD = re.compile(r"\s*\S+")
CLEAR = "\033[K"  # the rest of a line


def print_folded(lines: Iterable[str | Text], heads: re.Pattern[str] | None = None, *, stderr: bool = False) -> None:
    """Print lines made harmless, folded between words on a terminal; a piped one stays on one line.

    heads: the words at the beginning of a line that a terminal shows in bold.
    """
    console = Console(stderr=stderr)
    for line in lines:
        plain = line.plain if isinstance(line, Text) else line
        if isinstance(line, Text) and harmless_lines(plain) == plain:
            text = line
        else:
            text = Text(harmless_lines(plain), no_wrap=isinstance(line, Text) and line.no_wrap)
        if not console.is_terminal:
            print(text.plain, file=console.file)  # rich takes seconds to lay out thousands of lines
            continue
        if heads is not None and (head := heads.match(text.plain)) is not None:
            text.stylize("bold", 0, head.end())
        for part in folded(text, console.width):
            console.print(part, soft_wrap=True)


def print_lines(lines: Iterable[str], *, stderr: bool = False) -> None:
    """Print lines made harmless, which nothing folds."""
    print(harmless_lines("\n".join(lines)), file=sys.stderr if stderr else sys.stdout, flush=True)


def print_next(commands: Mapping[str, str], before: Iterable[str] = (), title: str = "next:") -> None:
    """Print the commands that come next, each with what it is for; before: those that need no words, and come first."""
    print_folded(next_lines(commands, before, title))


def next_lines(commands: Mapping[str, str], before: Iterable[str] = (), title: str = "next:") -> list[Text]:
    """Return the lines of print_next. Nothing folds a command, so that it can be copied."""
    width = max(map(len, commands))
    room = (terminal_width() or sys.maxsize) - width - 2 * len(GAP)
    lines = [Text(f"{GAP}{command}", no_wrap=True) for command in before]
    for command, purpose in commands.items():
        for at, part in enumerate(folded(Text(purpose, "dim"), room)):
            lines.append(Text.assemble(f"{GAP}{'' if at else command:<{width}}{GAP}", part, no_wrap=True))
    return [Text(title), *lines]


def is_watched() -> bool:
    """Tell whether people read what is printed: on a terminal, but not with --json, whose words go to stderr."""
    return sys.stdout is not sys.stderr and sys.stdout.isatty()


@contextmanager
def at_work(words: str) -> Iterator[None]:
    """Say on a terminal what is waited for, in a line that is gone once the `with` block is left."""
    can_clear = is_watched() and not Console().is_dumb_terminal
    if can_clear:
        print(f"{harmless(words)} …", end="\r", flush=True)  # a line that the work itself prints takes its place
    try:
        yield
    finally:
        if can_clear:
            print(f"\r{CLEAR}", end="", flush=True)


def folded(line: Text, width: int) -> list[Text]:
    """Break a line between words, unless it is one to copy (no_wrap); a word that no line has room for stays whole.

    Later lines begin below the text behind the first one's label, or else two columns to the right of the first.
    """
    if line.no_wrap:
        return [line]
    label = LABEL.match(line.plain)
    indent = len(label[0]) if label else len(line.plain) - len(line.plain.lstrip()) + 2
    cuts, used = list[int](), 0
    for word in WORD.finditer(line.plain.rstrip()):  # regular expressions would try each blank at the end
        alone = indent + cell_len(word[0].lstrip())
        if word.start() > 0 and used + cell_len(word[0]) > width >= alone:
            cuts.append(word.start())
            used = alone
        else:
            used += cell_len(word[0])
    first, *later = line.divide(cuts)
    return [first, *(Text.assemble(" " * indent, part[len(part) - len(part.plain.lstrip()) :]) for part in later)]


def shortened(text: str, columns: int) -> str:
    """Cut a text to so many columns, at the end of a word where its letters are one column wide each."""
    cut = shorten(text, columns)
    return cut if cell_len(cut) <= columns else f"{set_cell_size(text, columns - 1)}…"


def print_text(text: str, end: str = "\n") -> None:
    """Print a text of others: harmless on a terminal; else unchanged and in UTF-8, for a file."""
    if sys.stdout.isatty():
        text = harmless_lines(text)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(text, end=end)


def terminal_width() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere."""
    console = Console()
    return console.width if console.is_terminal else None


def console_on(stream: TextIO) -> Console:
    """Return a console that draws over its lines on a terminal alone: FORCE_COLOR colours a file and makes it none."""
    return Console(file=stream, force_interactive=None if stream.isatty() else False)


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
    table = [[column.name for column in columns], *([harmless(cell) for cell in row] for row in rows)]
    whole = {
        at: max(cell_len(row[at]) for row in table)
        for at, column in enumerate(columns)
        if column.rank == 0 or any(row[at] for row in table[1:])
    }
    shown = whole if width is None else _fitting(columns, whole, width)
    return [
        GAP.join(_padded(row[at], places, columns[at].right) for at, places in shown.items()).rstrip() for row in table
    ]


def _fitting(columns: Sequence[Column], whole: Mapping[int, int], width: int) -> dict[int, int]:
    """Return the width of each column that is shown; texts share the remaining places alike."""
    places = {at: min(most, columns[at].least or most) for at, most in whole.items()}
    while (spare := width + len(GAP) - sum(places.values()) - len(GAP) * len(places)) < 0:
        droppable = [at for at in places if columns[at].rank]
        if not droppable:
            return places
        del places[max(droppable, key=lambda at: columns[at].rank)]
    cut = sorted((at for at in places if places[at] < whole[at]), key=lambda at: whole[at] - places[at])
    for number, at in enumerate(cut):
        more = min(whole[at] - places[at], spare // (len(cut) - number))
        places[at], spare = places[at] + more, spare - more
    return places


def _padded(text: str, places: int, right: bool) -> str:
    cut = shortened(text, places)
    blank = " " * (places - cell_len(cut))
    return blank + cut if right else cut + blank
