"""Fit text into the columns of a terminal: between words, by the columns that characters take there."""

import re
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agent.text import CUT_WITH, harmless

BETWEEN = " · "
LABEL = re.compile(r" *\w+ {2,}(?=\S)")  # as in "  script   /home/…"
WORD = re.compile(r"\s*(?:(?:val_bpb|σ|gain|±) )?\S+")  # a number stays with its name


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


def as_many_as_fit(parts: Sequence[str | Text], columns: int) -> Text:
    """Join the first parts of a line, as many as fit into the columns; at least one, shortened if it has to be."""
    texts = [Text(part) if isinstance(part, str) else part for part in parts]
    widths = accumulate(len(BETWEEN) * (at > 0) + text.cell_len for at, text in enumerate(texts))
    count = sum(width <= columns for width in widths)
    if texts and not count:
        return Text(shortened(texts[0].plain, columns), texts[0].style)
    return Text(BETWEEN).join(texts[:count])
