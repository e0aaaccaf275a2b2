"""How a night is asked to end: by a signal to its process or by a file in its folder."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
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
        """Ctrl-C and SIGTERM count as wishes while this holds; a closed terminal is one, however often it says so."""
        with handling(self._count, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            yield

    def _count(self, number: int, frame: object) -> None:
        self._signals = max(1, self._signals) if number == signal.SIGHUP else self._signals + 1
        with suppress(OSError):  # for `nightshift status`; the count is what the night goes by
            self.wish(NOW if self.now else AFTER_RUN)

    def _wish(self) -> str:
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            return ""


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Before there is a night to end in good order: SIGTERM and a closed terminal raise KeyboardInterrupt too."""
    with handling(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def handling(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """These signals go to the handler while this holds; but a closed terminal stays ignored for users of nohup."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [number for number in numbers if not (nohup and number == signal.SIGHUP)]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
