"""Hand out the long texts of a night while it goes on: those of ten thousand attempts would fill its memory."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from agent.errors import NightError
from agent.records.schema import LOCKED_S

KEPT = 100  # scripts, packed: a megabyte or two
SHORT = 100  # characters: to say where the text is takes as much
LOG, WHY = "SELECT last_lines FROM runs WHERE id = ?", "SELECT hypothesis FROM attempts WHERE number = ?"
PACKED = "SELECT packed FROM scripts WHERE sha256 = ?"


class Shelf:
    """Read texts from a journal by their keys, in any thread: sources of ideas ask for them in their own.

    The file stays open, so that they can be read even where it was removed.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._db: sqlite3.Connection | None = self._opened()
        self.packed = lru_cache(maxsize=KEPT)(self._packed)

    def close(self) -> None:
        """Close the file; whoever asks for a text later opens it for that one question."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def _opened(self) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S, check_same_thread=False)

    def _packed(self, sha256: str) -> bytes:
        return bytes(self.read(PACKED, sha256, f"the script {sha256[:12]}"))

    def read(self, query: str, key: str | int, what: str) -> Any:
        try:
            with self._lock:
                if self._db is not None:
                    return _first(self._db, query, key)
            with closing(self._opened()) as database:
                return _first(database, query, key)
        except (sqlite3.Error, LookupError) as error:
            why = f"{self._path} does not give {what} ({error})"
            raise NightError(f"{why}; move its folder away to go on without it") from error


def _first(database: sqlite3.Connection, query: str, key: str | int) -> Any:
    return database.execute(query, (key,)).fetchall()[0][0]


@dataclass(frozen=True, slots=True)
class Unread:
    """Stand in for a text of an attempt or a run: know where it is, and read it when called."""

    shelf: Shelf
    query: str
    key: int

    def __call__(self) -> str:
        return str(self.shelf.read(self.query, self.key, f"a text of {self.key}") or "")
