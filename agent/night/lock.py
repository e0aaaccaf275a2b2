"""Allow one night at a time in a repository, tell others which one runs, and let them ask it to end.

The lock alone, in the git folder, tells whether a night is running; it ends with its process. The file beside it tells
which night it is. A night is asked to end by a signal to its process, or by a file in its folder.
"""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from filelock import FileLock, Timeout

from agent.clock import utc_now
from agent.errors import NightError
from agent.files import naming
from agent.invocation import typed
from agent.night.limits import Limits
from agent.proposers.proposer import Left

BRIEFLY_S = 0.5  # s to wait for the lock: a command that only asks holds it for a moment
AFTER_RUN, NOW = "after-run", "now"
Handler = Callable[[int, FrameType | None], Any]


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has the repository for itself, and the limits of its night."""

    pid: int
    tag: str
    since: str  # ISO 8601, UTC
    folder: str  # the night's folder, which may be in another working tree of the repository
    hours: float | None  # hours, experiments and began_s are the night's Limits
    experiments: int | None
    began_s: float

    def left(self, proposals: int) -> Left:
        """Return what is left of the night; proposals: as in Limits."""
        return Limits(self.experiments, self.hours, began_s=self.began_s).left(proposals)


@contextmanager
def only_night(repository: Path) -> Iterator[Callable[..., None]]:
    """Lock the repository (its git folder, shared by linked worktrees); raise NightError naming a night that runs.

    Yield a function that tells others the night's tag, folder and limits, once they are known.
    """
    place, lock = _place(repository), _lock(repository)
    try:
        lock.acquire(timeout=BRIEFLY_S)
    except Timeout as error:
        raise _in_the_way(repository) from error
    since = utc_now()

    def tell(tag: str, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008, it is frozen
        hours, experiments, began_s = limits.hours, limits.experiments, limits.began_s
        facts = asdict(Holder(os.getpid(), tag, since, str(folder), hours, experiments, began_s))
        place.write_text(json.dumps(facts), encoding="utf-8")

    try:
        tell_end(repository)  # a night that was killed could not
        yield tell
    finally:
        tell_end(repository)
        lock.release()


def tell_end(repository: Path) -> None:
    """Tell others that no night runs any more, though its process may still hold the repository."""
    _place(repository).unlink(missing_ok=True)


@contextmanager
def no_night(repository: Path) -> Iterator[None]:
    """Let no night begin; raise NightError naming one that runs. Nothing is written: the disk may be read-only."""
    with ExitStack() as held:
        try:
            held.enter_context(_shared(repository))
        except BlockingIOError as error:
            raise _in_the_way(repository) from error
        yield


def _in_the_way(repository: Path) -> NightError:
    running = holder(repository)
    if running is None:
        return NightError("another command is at work in this repository: try again in a moment")
    named = f"night {running.tag} (pid {running.pid})"
    return NightError(f"{named} is running in this repository; end it with: {typed('stop')}")


def holder(repository: Path) -> Holder | None:
    """Return the process that runs a night in this repository now; None also where its night has no tag yet."""
    if not is_held(repository):
        return None
    try:
        return Holder(**json.loads(_place(repository).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(repository: Path) -> bool:
    """Tell whether a night runs in this repository now; nothing is written, as the disk may be full or read-only."""
    try:
        with _shared(repository):
            return False
    except BlockingIOError:
        return True


@contextmanager
def _shared(repository: Path) -> Iterator[None]:
    """Share the lock with others that only read; raise BlockingIOError where one has it for itself."""
    with ExitStack() as held:
        with suppress(FileNotFoundError, PermissionError):  # no night has run here yet, or none of this user's
            file = held.enter_context(_place(repository).with_suffix(".lock").open("rb"))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def _lock(repository: Path) -> FileLock:
    return FileLock(_place(repository).with_suffix(".lock"))


def _place(repository: Path) -> Path:
    """Return a file in the git folder, which linked worktrees share and `git clean` leaves alone."""
    return repository / "nightshift.json"


# ---- the wish to end -------------------------------------------------------------------------------------------------


class Stop:
    """The user's wishes to end a night: the first ends it after the current run, the second ends the run too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "stop"
        self._signals = 0

    @property
    def after_run(self) -> bool:
        return self._signals >= 1 or self._wish() != ""

    @property
    def now(self) -> bool:
        return self._signals >= 2 or self._wish() == NOW

    def wish(self, wish: str) -> None:
        """Leave a wish for the process that runs the night."""
        with naming(self._file):
            self._file.write_text(wish, encoding="utf-8")

    def forget(self) -> None:
        """Delete old wishes: they were meant for an earlier process of the night."""
        self._file.unlink(missing_ok=True)

    def on_signals(self) -> AbstractContextManager[None]:
        """Count Ctrl-C and SIGTERM as wishes; a closed terminal counts once, even if it sends several signals."""
        return handling(self._count, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def _count(self, number: int, frame: object) -> None:
        # a Ctrl-C is the second wish after `nightshift stop` too; SIGTERM is not: a service gives both at once
        before = int(self.after_run) if number == signal.SIGINT else self._signals
        self._signals = max(1, before) if number == signal.SIGHUP else before + 1
        with suppress(OSError):  # `nightshift status` reads the file; the night itself uses the count
            self.wish(NOW if self.now else AFTER_RUN)

    def _wish(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""


def like_ctrl_c() -> AbstractContextManager[None]:
    """Raise KeyboardInterrupt on SIGTERM and on a closed terminal too, while no night is open yet."""
    return handling(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handling(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Send these signals to the handler; under nohup, a closed terminal stays ignored."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [number for number in numbers if not (nohup and number == signal.SIGHUP)]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
