"""Allow one night at a time in a repository, by a lock in its git folder that ends with its process.

The lock alone tells whether a night is running. The file beside it tells which one.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from agent.errors import NightError
from agent.experiment import Left
from agent.invocation import typed

BRIEFLY_S = 0.5  # to wait for the lock: a command that only asks about it holds it for a moment


class NightIsRunning(NightError):
    """Say that a night, or an archive of one, has the repository for itself now."""


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    tag: str
    since: str
    folder: str = ""  # of the night: it may be in another working tree of the repository
    until: str | None = None  # when its hours end: ISO 8601, UTC
    experiments: int | None = None  # the limit of its proposals

    def left(self, ideas: int) -> Left:
        """Return what is left of the night; ideas: those that were proposed so far, without attempt 0."""
        until = None if self.until is None else datetime.fromisoformat(self.until)
        seconds = None if until is None else max(0.0, (until - datetime.now(UTC)).total_seconds())
        return Left(None if self.experiments is None else max(0, self.experiments - ideas), seconds)


class Tell(Protocol):
    def __call__(self, tag: str, folder: Path, hours: float | None = None, experiments: int | None = None) -> None: ...


@contextmanager
def only_night(repository: Path) -> Iterator[Tell]:
    """Lock the repository (its git folder, shared by linked worktrees); raise NightError naming a night that runs.

    Yield a function that tells others the night's tag, folder and limits, once they are known.
    """
    place, lock = _place(repository), _lock(repository)
    try:
        lock.acquire(timeout=BRIEFLY_S)
    except Timeout as error:
        who = holder(repository)
        if who is None:
            raise NightIsRunning(
                f"a night that has just begun, or an archive of one, is at work in this repository; see it with "
                f"{typed('status')}, and try again"
            ) from error
        named = f"night {who.tag} (pid {who.pid}, since {who.since})"
        raise NightIsRunning(f"{named} is running in this repository; end it with: {typed('stop')}") from error
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")

    def tell(tag: str, folder: Path, hours: float | None = None, experiments: int | None = None) -> None:
        until = None if hours is None else f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
        place.write_text(json.dumps(asdict(Holder(os.getpid(), tag, since, str(folder), until, experiments))))

    try:
        place.unlink(missing_ok=True)  # a night that was killed could not
        yield tell
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def holder(repository: Path) -> Holder | None:
    """Return the process that runs a night in this repository now; None also where its night has no tag yet."""
    if not is_held(repository):
        return None
    try:
        return Holder(**json.loads(_place(repository).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_held(repository: Path) -> bool:
    """Tell whether a night runs in this repository now."""
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
    """Return a file in the git folder, which linked worktrees share and `git clean` leaves alone."""
    return repository / "nightshift.json"
