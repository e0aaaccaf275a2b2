"""Lines that stay at the bottom of a terminal, below those that scroll.

After each drawing the cursor goes back to the first of them. So the next drawing overwrites them, as does a line that
scrolls or another process's message. This holds also after the terminal was made narrower or wider and has broken the
lines in another way. Where the way back is by the number of lines, as in rich.live.Live, some of them would stay.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

CLEAR_BELOW, CLEAR_REST_OF_LINE = "\x1b[J", "\x1b[K"
CUT_LONG_LINES, WRAP_LONG_LINES = "\x1b[?7l", "\x1b[?7h"  # a terminal may have changed its size a moment ago
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class PinnedLines:
    """Draw lines below everything printed so far; nothing but these methods may write to the console meanwhile."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn = ""

    def show(self, lines: Sequence[Text]) -> None:
        """Draw these lines in place of those shown before; a low terminal shows the first of them."""
        drawing = self._drawing(lines)
        if drawing != self._drawn:
            self._drawn = drawing
            self._write(f"{HIDE_CURSOR}{drawing}" if drawing else f"\r{CLEAR_BELOW}")

    def print_above(self, lines: Sequence[Text], pinned: Sequence[Text]) -> None:
        """Print lines that scroll, and draw the pinned ones below them."""
        self._drawn = self._drawing(pinned)
        printed = "".join(f"{self._rendered(line)}\n" for line in lines)
        self._write(f"\r{CLEAR_BELOW}{printed}{self._drawn}")

    def close(self) -> None:
        """Remove the pinned lines."""
        if self._drawn:
            self._drawn = ""
            self._write(f"\r{CLEAR_BELOW}{SHOW_CURSOR}")

    def _drawing(self, lines: Sequence[Text]) -> str:
        if not lines:
            return ""
        fitting = lines[: max(1, self._console.height - 1)]
        back = f"\x1b[{len(fitting) - 1}A" if len(fitting) > 1 else ""
        drawn = f"{CLEAR_REST_OF_LINE}\n".join(map(self._rendered, fitting))
        return f"{CUT_LONG_LINES}\r{drawn}{CLEAR_BELOW}{back}\r{WRAP_LONG_LINES}"

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as rendering:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return rendering.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
