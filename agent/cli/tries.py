"""Tell where each try of the queue stands, by the queue and the journals.

A try is an entry of the queue with an id. Start with trying.py, which puts them there and waits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Attempt, History
from agent.files import read_end
from agent.proposers import queue
from agent.records.place import Place
from agent.text import one_line
from agent.view.answer import TryInLine

SHOWN_DONE = 10  # the latest of them
WHY_BYTES = 4000


class TryState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STALE = "stale"  # refused: the edit lacks what was kept meanwhile
    REFUSED = "refused"  # refused when its turn came: it could not be tried
    UNFINISHED = "unfinished"  # no verdict yet, and its caller has stopped waiting


@dataclass(frozen=True, slots=True)
class Try:
    """One try, and the attempt that it became."""

    path: Path
    entry: queue.QueueEntry
    state: TryState
    why: str | None = None  # why the try was refused
    attempt: Attempt | None = None  # None until a night has taken the try

    @property
    def id(self) -> str:
        return f"t{self.path.stem}"

    @property
    def in_line(self) -> TryInLine:
        """Return what `nightshift status --json` says of it."""
        entry, attempt = self.entry, self.attempt
        number, status = (attempt.number, attempt.status) if attempt else (None, None)
        return TryInLine(self.id, self.state, entry.title, entry.night, number, status, entry.submitted, self.why)


def find_try(place: Place, try_id: str) -> Try:
    """Return the try of this id; raise NightError where there is none."""
    for folder in (place.queue, place.queue / queue.DONE, place.queue / queue.REFUSED):
        for path, entry in queue.entries(folder):
            if f"t{path.stem}" == try_id:
                return _tries(place, [(path, entry)])[0]
    known = ", ".join(tried.id for tried in latest(place)) or "none"
    raise NightError(f"there is no try {one_line(try_id, 40)!r} here; the latest ones: {known}")


def under_way(place: Place) -> list[Try]:
    """Return the tries without a verdict, in the order in which they are taken."""
    return [tried for tried in _tries(place, queue.entries(place.queue)) if tried.state is not TryState.DONE]


def latest(place: Place) -> list[Try]:
    """Return all tries that wait or are at work, and the last that are done."""
    ended = [*queue.entries(place.queue / queue.DONE), *queue.entries(place.queue / queue.REFUSED)]
    ended = sorted(ended, key=lambda pair: int(pair[0].stem))[-SHOWN_DONE:]
    return _tries(place, (*ended, *queue.entries(place.queue)))


def _tries(place: Place, entries: Iterable[tuple[Path, queue.QueueEntry]]) -> list[Try]:
    """Return the tries of these entries. Each journal is read once, which takes long after many attempts."""
    histories = dict[str, History]()
    return [_try(place, path, entry, histories) for path, entry in entries]


def _try(place: Place, path: Path, entry: queue.QueueEntry, histories: dict[str, History]) -> Try:
    if path.parent.name == queue.REFUSED:
        why = read_end(path.parent, f"{path.stem}.txt", WHY_BYTES).decode(errors="replace").strip()
        return Try(path, entry, TryState.REFUSED, why)
    attempt = queue.became(entry, place.nights, histories)
    state = TryState.WAITING if attempt is None else TryState.DONE if attempt.settled else TryState.RUNNING
    return Try(path, entry, state, None, attempt)


def tries_line(tries: Sequence[Try]) -> str | None:
    """Return a line for people on the tries that wait; None where none does."""
    waiting = sum(tried.state is TryState.WAITING for tried in tries)
    now = next((f"{tried.id} is at work, " for tried in tries if tried.state is TryState.RUNNING), "")
    return f"tries: {now}{waiting} waiting" if now or waiting else None
