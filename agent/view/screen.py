"""Print lines to a terminal or a pipe, and go on where their reader disappears."""

import os
import re
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console
from rich.text import Text


def print_lines(lines: Iterable[Text]) -> None:
    """Print lines without wrapping: a terminal folds long ones itself, and piped output stays whole."""
    console = Console()
    if not console.is_terminal:
        print("\n".join(line.plain for line in lines))  # rich takes seconds to lay out thousands of lines
        return
    for line in lines:
        console.print(line, soft_wrap=True)


def print_folded(lines: Iterable[str], heads: re.Pattern[str] | None = None) -> None:
    """Print sentences, folded between words on a terminal; a piped one stays on one line.

    heads: the words at the beginning of a line that a terminal shows in bold.
    """
    console = Console()
    for line in lines:
        if not console.is_terminal:
            print(line)
            continue
        shown = Text("\n".join(_folded(line, console.width)))
        if heads is not None and (head := heads.match(line)) is not None:
            shown.stylize("bold", 0, head.end())
        console.print(shown, soft_wrap=True)


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


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
