"""A real pseudo-terminal with a command in it, and its screen as a person would see it."""

import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pyte
from nights import environment

READ_BYTES = 1 << 16


class Terminal:
    """Runs a command in a pseudo-terminal of this size until the `with` block is left."""

    def __init__(self, arguments: Sequence[str], folder: Path, columns: int, rows: int = 24, **env: str) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self._screen)
        self._reading = threading.Lock()
        self._frames: list[str] = []
        self._outer, inner = os.openpty()
        self._set_size(columns, rows)
        env_of_terminal = environment(TERM="xterm-256color", **env)
        env_of_terminal.pop("COLUMNS", None)  # the terminal's own size counts
        self.process = subprocess.Popen(
            arguments, cwd=folder, env=env_of_terminal, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self._reader = threading.Thread(target=self._read, daemon=True)  # a full terminal would hold the command up
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._outer)

    def until(self, true: Callable[[], object], seconds: float = 120) -> None:
        """Wait until this holds."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, self.text()
            assert self._reader.is_alive() or true(), self.text()
            time.sleep(0.02)

    def to_the_end(self, seconds: float = 120) -> int:
        """Wait until the command has ended; return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def lines(self) -> list[str]:
        """Return all lines, those that have scrolled away first, without the blanks at their ends."""
        with self._reading:
            width = self._screen.columns
            scrolled = ["".join(row[at].data for at in range(width)) for row in self._screen.history.top]
            return [line.rstrip() for line in (*scrolled, *self._screen.display)]

    def text(self) -> str:
        return "\n".join(self.lines())

    def has_shown(self, *parts: str) -> bool:
        """Tell whether all of this was on the screen at one time."""
        return any(all(part in frame for part in parts) for frame in self._frames)

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        """Read until the command has ended and closed its side."""
        with suppress(OSError):
            while data := os.read(self._outer, READ_BYTES):
                with self._reading:
                    self._stream.feed(data)
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
