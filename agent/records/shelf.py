"""Hand out the scripts of a night while it goes on: ten thousand of them would fill its memory."""

import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from threading import Lock

from agent.errors import NightError
from agent.records.schema import LOCKED_S

KEPT = 100  # scripts, packed: a megabyte or two


class Shelf:
    """Read scripts from a journal by their hashes, in any thread: sources of ideas ask for them in their own.

    The file stays open, so that they can be read even where it was removed.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._db: sqlite3.Connection | None = self._opened()
        self.packed = lru_cache(maxsize=KEPT)(self._read)

    def close(self) -> None:
        """Close the file; a script that is asked for later opens it once more."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def _opened(self) -> sqlite3.Connection:
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCKED_S, check_same_thread=False)

    def _read(self, sha256: str) -> bytes:
        try:
            with self._lock:
                if self._db is not None:
                    return _packed(self._db, sha256)
            with closing(self._opened()) as database:
                return _packed(database, sha256)
        except (sqlite3.Error, LookupError) as error:
            why = f"{self._path} does not give the script {sha256[:12]} ({error})"
            raise NightError(f"{why}; move its folder away to go on without it") from error


def _packed(database: sqlite3.Connection, sha256: str) -> bytes:
    found: bytes = database.execute("SELECT packed FROM scripts WHERE sha256 = ?", (sha256,)).fetchall()[0][0]
    return found
