"""A real pseudo-terminal with a command in it, and its screen as a person would see it."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pyte
from nights import environment

READ_BYTES = 1 << 16


class Terminal:
    """Runs a command in a pseudo-terminal of this size until the `with` block is left."""

    def __init__(self, arguments: Sequence[str], folder: Path, columns: int, rows: int = 24, **env: str) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._outer, inner = os.openpty()
        self._set_size(columns, rows)
        known = environment(TERM="xterm-256color", **env)
        known.pop("COLUMNS", None)  # the terminal's own size counts
        self.process = subprocess.Popen(
            arguments, cwd=folder, env=known, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._outer)

    def until(self, true: Callable[[], object], seconds: float = 60) -> None:
        """Read what the command writes until this holds."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, "\n".join(self.lines())
            assert self._read() or self.process.poll() is None or true(), "\n".join(self.lines())

    def to_the_end(self, seconds: float = 120) -> int:
        """Read until the command has ended; return its exit code."""
        self.until(lambda: self.process.poll() is not None, seconds)
        while self._read():
            pass
        return self.process.wait()

    def lines(self) -> list[str]:
        """Return all lines, those that have scrolled away first, without the blanks at their ends."""
        width = self.screen.columns
        scrolled = ["".join(row[at].data for at in range(width)) for row in self.screen.history.top]
        return [line.rstrip() for line in (*scrolled, *self.screen.display)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def resize(self, columns: int, rows: int = 24) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        """Read once; return False where there was nothing to read."""
        if not select.select([self._outer], [], [], 0.05)[0]:
            return False
        try:
            data = os.read(self._outer, READ_BYTES)
        except OSError:  # the command has ended and closed it
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)


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
