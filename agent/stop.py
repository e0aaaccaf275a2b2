"""How a night is asked to end: by a signal to its process or by a file in its folder."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AFTER_RUN, NOW = "after-run", "now"


class Stop:
    """Wishes add up: the first ends the night after the current run, the second ends the run too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stop"
        self._signals = 0

    @property
    def after_run(self) -> bool:
        return self._signals >= 1 or self._wish() in (AFTER_RUN, NOW)

    @property
    def now(self) -> bool:
        return self._signals >= 2 or self._wish() == NOW

    def wish(self, wish: str) -> None:
        """Ask from another process."""
        self._file.write_text(wish)

    def forget(self) -> None:
        """A wish belongs to the night's process that was running when it was made."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM count as wishes while this holds."""
        before = {number: signal.signal(number, self._count) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _count(self, number: int, frame: object) -> None:
        self._signals += 1

    def _wish(self) -> str:
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            return ""
