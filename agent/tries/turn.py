"""Let tries in one repository, its linked worktrees included, take turns: one at a time has the machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

POLL_S = 0.05  # how often who waits looks whether it is its turn
BRIEFLY_S = 0.2  # who asks whether a try is at work holds the lock for a moment
PAUSE_S = 4 * POLL_S  # between two tries of the line, so that who waits beside it has a turn, too


@contextmanager
def turn(repository: Path, wait_began: Callable[[], None]) -> Iterator[None]:
    """Wait until no other try is at work; `wait_began` is called where one is. repository: its git folder."""
    lock = _lock(repository)
    try:
        lock.acquire(timeout=BRIEFLY_S)
    except Timeout:
        wait_began()
        lock.acquire(poll_interval=POLL_S)
    try:
        yield
    finally:
        lock.release()


def is_taken(repository: Path) -> bool:
    """Return whether a try is at work in this repository."""
    try:
        with _lock(repository).acquire(timeout=0):
            return False
    except Timeout:
        return True


def _lock(repository: Path) -> FileLock:
    return FileLock(repository / "nightshift-try.lock")
