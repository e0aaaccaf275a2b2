"""One night at a time in a repository: a lock in its git folder that dies with its process.

The lock alone says whether a night is running; the file beside it only says which one.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from agent.errors import NightError
from agent.invocation import typed

BRIEFLY_S = 0.5  # to get the lock in: somebody who only asks about it has it for a moment


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    tag: str
    since: str
    folder: str = ""  # of the night: it may be in another working tree of the repository


@contextmanager
def only_night(repository: Path) -> Iterator[Callable[[str, Path], None]]:
    """Hold the repository (its git folder, shared by linked worktrees); raises NightError naming who does already.

    Yields a function that tells others the night's tag and folder, once they are known.
    """
    place, lock = _place(repository), _lock(repository)
    try:
        lock.acquire(timeout=BRIEFLY_S)
    except Timeout as error:
        who = holder(repository)
        named = f"night {who.tag} (pid {who.pid}, since {who.since})" if who else "a night that has just begun"
        raise NightError(f"{named} is running in this repository; end it with: {typed('stop')}") from error
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")

    def tell(tag: str, folder: Path) -> None:
        place.write_text(json.dumps(asdict(Holder(os.getpid(), tag, since, str(folder)))))

    try:
        place.unlink(missing_ok=True)  # a night that was killed could not
        yield tell
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def holder(repository: Path) -> Holder | None:
    """Who runs a night in this repository now; None also for one that has no tag yet."""
    if not is_held(repository):
        return None
    try:
        return Holder(**json.loads(_place(repository).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(repository: Path) -> bool:
    """Whether a night runs in this repository now."""
    try:
        with _lock(repository).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False  # a repository that cannot be written has no night


def _lock(repository: Path) -> FileLock:
    return FileLock(_place(repository).with_suffix(".lock"))


def _place(repository: Path) -> Path:
    """In the git folder: shared by linked worktrees, whoever runs the night, and never cleaned."""
    return repository / "nightshift.json"
