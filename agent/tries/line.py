"""Keep the tries that were started in a line: a folder for each, with its request and, once it was tried, the answer.

It lives on the disk, so a restart of the machine costs nothing. Whatever else lies in the folder is left alone.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from agent.errors import NightError
from agent.files import flush, ignore_all, read_plain, remove, write_plain
from agent.text import one_line
from agent.tries.request import TryRequest

ID = re.compile(r"t\d{4,8}")
REQUEST, ANSWER, LOG = "request.json", "answer.json", "log.txt"
MOST_BYTES = 4 << 20  # of a request: a script has at most 256 KiB, and JSON may take six characters for one
MOST_WAITING = 100
BRIEFLY_S = 5.0  # to wait for who changes the line: that takes milliseconds
SHOWN_DONE = 10  # the latest of them
WRONG = "remove it, or leave it alone: it is no try of the line"


class TryState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STALE = "stale"  # refused, since it lacks what was kept
    UNFINISHED = "unfinished"  # no verdict yet, and its caller has stopped waiting
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LineEntry:
    """Hold one try of the line; without a request it cannot be read, and `fault` says why."""

    folder: Path
    state: TryState
    request: TryRequest | None = None
    answer: Mapping[str, Any] | None = None
    fault: str | None = None

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        return self.folder / LOG

    def facts(self) -> dict[str, object]:
        """Return what `nightshift status --json` says of it."""
        answer = self.answer or {}
        told = answer.get("facts", {})
        return {
            "id": self.id,
            "state": self.state,
            "title": self.request.title if self.request else None,
            "tag": told.get("tag") or (self.request.tag if self.request else None),
            "attempt": told.get("attempt"),
            "status": told.get("status"),
            "submitted": self.request.submitted if self.request else None,
            "error": answer.get("error"),
            "exit_code": answer.get("exit_code"),
        }


class TryLine:
    """Read and change the tries of one working tree; root: its top folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "experiments" / "tries"

    # ---- reading -----------------------------------------------------------------------------------------------------

    def latest(self, most_done: int) -> list[LineEntry]:
        """Return the tries, the oldest first; of those that have an answer only the last."""
        folders = self._folders()
        done = [folder for folder in folders if os.path.lexists(folder / ANSWER)]
        left_out = set(done[: max(0, len(done) - most_done)])
        return [self._read(folder) for folder in folders if folder not in left_out]

    def waiting(self) -> list[LineEntry]:
        """Return the tries without an answer, the one at work among them, in the order in which they are taken."""
        found = (self._read(folder) for folder in self._folders() if not os.path.lexists(folder / ANSWER))
        return [entry for entry in found if entry.state in (TryState.WAITING, TryState.RUNNING)]

    def entry(self, number: str) -> LineEntry:
        """Return the try of this id; raise NightError where there is none, or where it cannot be read."""
        folders = {folder.name: folder for folder in self._folders()}
        if number not in folders:
            some = ", ".join([*folders][-SHOWN_DONE:])
            there = f"the latest are: {some}" if len(folders) > SHOWN_DONE else f"there are: {some or 'none'}"
            raise NightError(f"there is no try {one_line(number, 40)!r}; {there}")
        entry = self._read(folders[number])
        if entry.fault is not None:
            raise NightError(f"{entry.folder}: {entry.fault}; {WRONG}")
        return entry

    def place_of(self, entry: LineEntry) -> int:
        """Return how many tries come before this one."""
        numbers = [one.id for one in self.waiting()]
        return numbers.index(entry.id) if entry.id in numbers else 0

    def is_worked(self, patience_s: float = 0.0) -> bool:
        """Return whether a process works through the line now; who asks the same at the moment seems to, too."""
        try:
            with self.worker_lock.acquire(timeout=patience_s):
                return False
        except Timeout:
            return True
        except OSError:
            return False  # where nothing can be written, none can be at work

    def _folders(self) -> list[Path]:
        """Return the folders of the tries, by number; files, links and folders of other names are none."""
        try:
            found = [path for path in self.folder.iterdir() if ID.fullmatch(path.name)]
        except OSError:
            return []
        return sorted((path for path in found if path.is_dir() and not path.is_symlink()), key=_number)

    def _read(self, folder: Path) -> LineEntry:
        try:
            request = TryRequest.of(self._json(folder / REQUEST))
        except (OSError, NightError, ValueError, TypeError, RecursionError) as error:
            return LineEntry(folder, TryState.DONE, fault=f"{REQUEST} cannot be read ({_said(error)})")
        if not os.path.lexists(folder / ANSWER):
            is_at_work = self._at_work() == folder.name and self.is_worked()
            return LineEntry(folder, TryState.RUNNING if is_at_work else TryState.WAITING, request)
        try:
            answer = _checked_answer(self._json(folder / ANSWER))
            return LineEntry(folder, TryState(answer["facts"].get("state", TryState.DONE)), request, answer)
        except (OSError, NightError, ValueError, AttributeError, RecursionError) as error:
            return LineEntry(folder, TryState.DONE, request, fault=f"{ANSWER} cannot be read ({_said(error)})")

    def _json(self, path: Path) -> Any:
        if path.is_symlink():
            raise ValueError("it is a link")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        return json.loads(read_plain(path))

    def _at_work(self) -> str:
        try:
            return read_plain(self._mark).strip()
        except (OSError, NightError):
            return ""

    # ---- changing ----------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep all others from changing the line during the `with` block; make its folder where there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ignore_all(self.folder)
        try:
            with self._lock("line").acquire(timeout=BRIEFLY_S):
                yield
        except Timeout:
            raise NightError(f"{self.folder / 'line.lock'} is held by another process; end that first") from None

    def add(self, request: TryRequest) -> LineEntry:
        """Put a try at the end of the line; only while changing()."""
        if len(self.waiting()) >= MOST_WAITING:
            raise NightError(f"{MOST_WAITING} tries wait already; take some out with --cancel")
        number = max((_number(path) for path in self.folder.iterdir() if ID.fullmatch(path.name)), default=0) + 1
        folder, aside = self.folder / f"t{number:04d}", self.folder / "new"
        remove(aside)  # of a call that was killed
        aside.mkdir()
        write_plain(aside / REQUEST, json.dumps(asdict(request), indent=1))
        aside.rename(folder)
        flush(self.folder)
        return LineEntry(folder, TryState.WAITING, request)

    def rewrite(self, entry: LineEntry, request: TryRequest) -> None:
        """Change what is to be tried, so that a try that is interrupted goes on with the same script."""
        write_plain(entry.folder / REQUEST, json.dumps(asdict(request), indent=1))

    def settle(self, entry: LineEntry, answer: Mapping[str, object]) -> None:
        write_plain(entry.folder / ANSWER, json.dumps(answer, indent=1))

    def cancel(self, number: str) -> LineEntry:
        """Take a try out of the line; raise NightError for one that is at work or done."""
        with self.changing():
            entry = self.entry(number)
            if entry.state is not TryState.WAITING:
                raise NightError(f"try {number} is {entry.state}; only one that waits can be taken out of the line")
            cancelled = {"facts": {"state": TryState.CANCELLED}, "lines": [f"{number} was taken out of the line"]}
            self.settle(entry, {"exit_code": 2, "error": f"try {number} was cancelled", **cancelled})
            return self.entry(number)

    def take(self) -> LineEntry | None:
        """Mark the first of the line as being at work; where it is empty, release the worker's lock and return None."""
        with self.changing():
            first = next(iter(self.waiting()), None)
            if first is None:
                self.put_down()  # while the mark is this process's own
                self.worker_lock.release()
            else:
                write_plain(self._mark, first.id)
            return first

    def put_down(self) -> None:
        """Say that no try is at work."""
        with suppress(OSError):
            self._mark.unlink(missing_ok=True)

    @cached_property
    def worker_lock(self) -> FileLock:
        """Return the lock that the process which works through the line holds."""
        return self._lock("worker")

    def _lock(self, name: str) -> FileLock:
        return FileLock(self.folder / f"{name}.lock")

    @property
    def _mark(self) -> Path:
        return self.folder / "at-work"


def tries_facts(root: Path) -> list[dict[str, object]]:
    """Return the tries that wait or are at work, and the latest that are done, for `nightshift status --json`."""
    return [entry.facts() for entry in TryLine(root).latest(SHOWN_DONE) if entry.fault is None]


def tries_line(root: Path) -> str | None:
    """Return a line for people on the tries that wait; None where none does."""
    waiting = TryLine(root).waiting()
    if not waiting:
        return None
    now = next((f"{one.id} is at work, " for one in waiting if one.state is TryState.RUNNING), "")
    return f"tries: {now}{sum(one.state is TryState.WAITING for one in waiting)} waiting"


def _number(folder: Path) -> int:
    return int(folder.name[1:])


def _checked_answer(answer: Any) -> Mapping[str, Any]:
    """Raise ValueError for facts that settle() cannot have written."""
    if not isinstance(answer.get("facts"), dict) or type(answer.get("exit_code")) is not int:
        raise ValueError("it has other keys")
    return {"error": None, "lines": (), **answer}


def _said(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__, 100)
