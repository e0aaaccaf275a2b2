"""A real pseudo-terminal with a command in it, and its screen as a person would see it."""

import fcntl
import os
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte
from nights import environment


class Terminal:
    """Shows what a command writes to a pseudo-terminal of this size."""

    def __init__(self, process: "subprocess.Popen[bytes]", outer: int, columns: int, rows: int) -> None:
        self.process = process
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._frames: list[str] = []
        self._reader = threading.Thread(
            target=self._read, args=(outer,), daemon=True
        )  # a full one holds the command up
        self._reader.start()

    @classmethod
    @contextmanager
    def of(cls, arguments: Sequence[str], folder: Path, columns: int, rows: int) -> Iterator["Terminal"]:
        """Run a command in a terminal until the `with` block is left."""
        outer, inner = os.openpty()
        fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = environment(TERM="xterm-256color")
        del env["COLUMNS"]  # the terminal's own size counts
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
        with subprocess.Popen(arguments, cwd=folder, env=env, start_new_session=True, **ends) as process:
            os.close(inner)
            terminal = cls(process, outer, columns, rows)
            try:
                yield terminal
            finally:
                process.kill()
                terminal._reader.join(10)
                os.close(outer)

    def to_the_end(self) -> int:
        """Wait until the command has ended; return its exit code."""
        code = self.process.wait(120)
        self._reader.join(10)
        return code

    def lines(self) -> list[str]:
        """Return all lines, those that have scrolled away first, without the blanks at their ends."""
        scrolled = ["".join(row[at].data for at in range(self._screen.columns)) for row in self._screen.history.top]
        return [line.rstrip() for line in (*scrolled, *self._screen.display)]

    def has_shown(self, *parts: str) -> bool:
        """Tell whether all of this was on the screen at one time."""
        return any(all(part in frame for part in parts) for frame in self._frames)

    def _read(self, outer: int) -> None:
        """Read until the command has ended and closed its side."""
        stream = pyte.ByteStream(self._screen)
        with suppress(OSError):
            while data := os.read(outer, 1 << 16):
                stream.feed(data)
                self._frames.append("\n".join(self._screen.display))


class Emulator:
    """A stream that shows what is written to it as a terminal of this size would."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.screen.set_mode(pyte.modes.LNM)  # a pseudo-terminal makes a line end of each newline
        self._stream = pyte.Stream(self.screen)
        self.raw = ""

    def write(self, text: str) -> int:
        self.raw += text
        self._stream.feed(text)
        return len(text)

    def flush(self) -> None: ...

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def text(self) -> str:
        return "\n".join(self.lines())
