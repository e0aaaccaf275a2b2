"""One night at a time in a repository: a lock in the user's cache folder that dies with its process."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from agent.errors import NightError


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    born: float  # the process's creation time: tells it from a later one with the same pid
    tag: str
    since: str


@contextmanager
def only_night(repository: Path) -> Iterator[Callable[[str], None]]:
    """Hold the repository (its git folder, shared by linked worktrees); raises NightError naming who does already.

    Yields a function that tells others the night's tag, once it is known.
    """
    place = _place(repository)
    lock = FileLock(place.with_suffix(".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        who = holder(repository)
        named = f"night {who.tag} (pid {who.pid}, since {who.since})" if who else "a night that has just begun"
        raise NightError(f"{named} is running in this repository; end it with: nightshift stop") from error
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")

    def tell(tag: str) -> None:
        place.write_text(json.dumps(asdict(Holder(os.getpid(), psutil.Process().create_time(), tag, since))))

    try:
        yield tell
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def holder(repository: Path) -> Holder | None:
    """Who runs a night in this repository now. Asks without taking the lock, so that asking never refuses a night."""
    try:
        found = Holder(**json.loads(_place(repository).read_text()))
        alive = psutil.Process(found.pid).create_time() == found.born
    except (OSError, ValueError, TypeError, psutil.Error):
        return None
    return found if alive else None


def _place(repository: Path) -> Path:
    folder = Path(os.environ.get("NIGHTSHIFT_CACHE") or user_cache_path("nightshift")) / "nights"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(str(repository).encode()).hexdigest()[:16]}.json"
