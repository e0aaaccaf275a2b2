"""Read a night for all clients together, at most once a second, and tell each what has changed since it last heard."""

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from agent.errors import NightError
from agent.experiment import Doing
from agent.proposers.briefing import Curve
from agent.records.journal import Journal
from agent.records.place import Place
from agent.view.facts.nouns import NightFacts
from agent.view.facts.read import curve, log_tail, night_facts, rounded
from agent.view.facts.workers import Busy, read_busy
from agent.view.live.follow import Moment
from agent.view.serve import present

PERIOD_S, HEARTBEAT_S = 1.0, 15.0
SHARE = 0.1  # of a processor for reading: what takes longer is read less often
INDEX_HEADER_BYTES = 48  # https://www.sqlite.org/walformat.html: a counter of commits, and a checksum
Stamp = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """Name the night to show, and what is known of the process that runs it now."""

    place: Place
    tag: str
    is_running: bool
    until: str | None = None  # when its hours end: ISO 8601, UTC
    experiments: int | None = None  # the limit of its proposals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold a night as it was last read, and the events that tell of it: topic → (count at its last change, bytes)."""

    watched: Watched
    facts: NightFacts
    version: str  # changes with the facts
    stamp: Stamp = ()
    now: Moment | None = None
    busy: Busy | None = None  # of several workers; None: the night has one
    notice: str | None = None  # why it could not be read just now
    count: int = 0
    events: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)

    def telling(self, topic: str, data: object) -> "Snapshot":
        """Return the same with an event of this topic, counted only if it says something new."""
        event = f"event: {topic}\ndata: {json.dumps(data)}\n\n".encode()
        if self.events.get(topic, (0, b""))[1] == event:
            return self
        count = self.count + 1
        return replace(self, count=count, events={**self.events, topic: (count, event)})


class Feed:
    """Share one reader of the journal among all clients; it sleeps while there are none."""

    def __init__(self, follow: Callable[[], Watched], period_s: float = PERIOD_S) -> None:
        """Begin with a first reading; raise NightError where there is no night to show."""
        self._follow, self._period_s = follow, period_s
        self._start = secrets.token_hex(4)  # another server's versions are no versions of this one
        self._versions = 0
        watched = follow()
        self._latest = self._told(Snapshot(watched, night_facts(watched.place, watched.tag), self._next_version()))
        self._due_s = 0.0
        self._reading = asyncio.Lock()

    async def snapshot(self) -> Snapshot:
        """Return the night as it is, read again if the last reading is old enough."""
        async with self._reading:
            began_s = time.monotonic()
            if began_s >= self._due_s:
                self._latest = await asyncio.to_thread(self._read_again, self._latest)
                ended_s = time.monotonic()
                self._due_s = max(began_s + self._period_s, ended_s + (ended_s - began_s) / SHARE)
            return self._latest

    async def events(self) -> AsyncIterator[bytes]:
        """Yield what a client has not heard yet: first all there is, then the latest of each topic that changed."""
        heard, spoke_s = 0, 0.0
        while True:
            snapshot = await self.snapshot()
            news = b"".join(event for count, event in snapshot.events.values() if count > heard)
            heard = snapshot.count
            if news or time.monotonic() >= spoke_s + HEARTBEAT_S:
                yield news or b": nothing new\n\n"
                spoke_s = time.monotonic()
            await asyncio.sleep(self._period_s)

    def _read_again(self, old: Snapshot) -> Snapshot:
        try:
            return self._told(self._refreshed(old))
        except (NightError, OSError, sqlite3.OperationalError) as error:
            return self._told(replace(old, notice=str(error), now=None, busy=None))

    def _refreshed(self, old: Snapshot) -> Snapshot:
        watched = self._follow()
        stamp = stamp_of(watched)
        if watched == old.watched and stamp == old.stamp and old.notice is None:
            return old
        facts = night_facts(watched.place, watched.tag)
        if facts.lost and watched.tag == old.facts.tag and not old.facts.lost:
            raise NightError(f"the journal of night {watched.tag} was removed; this page shows what it last held")
        version = old.version if facts == old.facts else self._next_version()
        now, busy = _now(watched)
        return replace(old, watched=watched, facts=facts, version=version, stamp=stamp, now=now, busy=busy, notice=None)

    def _told(self, snapshot: Snapshot) -> Snapshot:
        watched, now, facts = snapshot.watched, snapshot.now, snapshot.facts
        told = {
            "tag": facts.tag,
            "version": snapshot.version,
            "running": watched.is_running,
            "notice": snapshot.notice,
            "attempts": len(facts.attempts),
            "until": watched.until,
            "experiments_left": _experiments_left(snapshot),
        }
        several = None
        if snapshot.busy is not None:
            several = present.workers_of(watched.place, facts, snapshot.busy)
        snapshot = snapshot.telling("night", told).telling("workers", several)
        if now is None:
            return snapshot.telling("now", None).telling("curve", None).telling("log", "")
        attempt = facts.attempts[now.attempt] if now.attempt < len(facts.attempts) else None
        words = {} if attempt is None else {"title": attempt.title, "why": attempt.hypothesis, "source": attempt.source}
        where = {"attempt": now.attempt, "seed": now.seed, "dawn": now.dawn, "work": now.work}
        times = {"elapsed_s": None if now.elapsed_s is None else round(now.elapsed_s), "budget_s": facts.budget_s}
        progress = present.progress_of(watched.place, watched.tag, now.attempt, now.seed, now.work)
        snapshot = snapshot.telling("now", {**where, **times, **progress, **words})
        if now.seed is None:
            return snapshot.telling("curve", None).telling("log", "")
        log = log_tail(watched.place, facts.tag, now.attempt, now.seed, scoring=now.work is Doing.SCORING)
        snapshot = snapshot.telling("log", log or "")
        points = rounded(curve(watched.place, facts.tag, now.attempt, now.seed))
        best = _incumbents_curve(snapshot, now)
        return snapshot.telling("curve", {"attempt": now.attempt, "points": points, "best": best})

    def _next_version(self) -> str:
        self._versions += 1
        return f"{self._start}-{self._versions}"


def _now(watched: Watched) -> tuple[Moment | None, Busy | None]:
    """Return what the one worker of a night does now, or what several do."""
    if not watched.is_running:
        return None, None
    with Journal.read(watched.place.journal(watched.tag)) as journal:
        busy = read_busy(journal)
        return (Moment.read(journal), None) if busy is None else (None, busy)


def _experiments_left(snapshot: Snapshot) -> int | None:
    limit = snapshot.watched.experiments
    return None if limit is None else max(0, limit - len(snapshot.facts.ideas))


def _incumbents_curve(snapshot: Snapshot, now: Moment) -> dict[str, object] | None:
    """Return the curve of the incumbent, by the same seed if it ran with it; None where it is itself at work."""
    number = snapshot.facts.incumbent
    if number is None or number == now.attempt or number >= len(snapshot.facts.attempts):
        return None
    seeds = [run.seed for run in snapshot.facts.attempts[number].runs if run.val_bpb is not None]
    if not seeds:
        return None
    seed = now.seed if now.seed in seeds else seeds[0]
    assert seed is not None
    return {"attempt": number, "points": _ended_curve(snapshot.watched.place, snapshot.facts.tag, number, seed)}


@lru_cache(maxsize=8)
def _ended_curve(place: Place, tag: str, number: int, seed: int) -> Curve:
    """Return the curve of a run that has ended, whose file does not change."""
    return rounded(curve(place, tag, number, seed))


def stamp_of(watched: Watched) -> Stamp:
    """Return what differs after each commit to a night's journal, and after each change of results.tsv.

    A commit is written to the -wal file first. Readers see it when the index of that file tells of it, perhaps much
    later, since the disk is waited for in between. So the stamp is taken from the index (the -shm file).
    """
    journal = watched.place.journal(watched.tag)
    return (
        _file_stamp(journal),
        _index_header(journal.with_name(f"{journal.name}-shm")),
        _file_stamp(watched.place.ledger),
    )


def _file_stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _index_header(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(INDEX_HEADER_BYTES)
    except OSError:
        return None  # nothing has it open, so that nothing changes
