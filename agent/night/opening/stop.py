"""Ask a night to end, by a signal to its process or by a file in its folder."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
AFTER_RUN, NOW = "after-run", "now"


class Stop:
    """Hold the wishes to end a night: the first ends it after the current run, the second ends the run too."""

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
        """Leave a wish for the process that runs the night."""
        self._file.write_text(wish)

    def forget(self) -> None:
        """Delete old wishes: they were meant for an earlier process of the night."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Count Ctrl-C and SIGTERM as wishes; a closed terminal counts once, even if it sends several signals."""
        with handling(self._count, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            yield

    def _count(self, number: int, frame: object) -> None:
        self._signals = max(1, self._signals) if number == signal.SIGHUP else self._signals + 1
        with suppress(OSError):  # for `nightshift status`; the night itself uses the count
            self.wish(NOW if self.now else AFTER_RUN)

    def _wish(self) -> str:
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            return ""


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and on a closed terminal too, while no night is open yet."""
    with handling(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def handling(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Send these signals to the handler; under nohup, a closed terminal stays ignored."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [number for number in numbers if not (nohup and number == signal.SIGHUP)]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
