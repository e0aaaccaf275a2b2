"""Keep what is made of a night for all clients together, and make it again only as often as the machine can spare."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent.view.serve.feed import SHARE, Feed, Snapshot

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Version(Generic[Made]):
    """Hold something that was made of one version of a night."""

    tag: str
    version: str
    made: Made


class Rendered(Generic[Made]):
    """Make something of the night when a client asks for it and the night has changed, in a thread."""

    def __init__(self, feed: Feed, make: Callable[[Snapshot], Made]) -> None:
        self._feed, self._make = feed, make
        self._kept: Version[Made] | None = None
        self._due_s = 0.0
        self._making = asyncio.Lock()

    async def latest(self) -> Made:
        """Return it for the present version, or for an earlier one of the same night that was made a moment ago."""
        snapshot = await self._feed.snapshot()
        async with self._making:
            kept, began_s = self._kept, time.monotonic()
            is_old = kept is None or kept.version != snapshot.version
            if kept is None or kept.tag != snapshot.facts.tag or (is_old and began_s >= self._due_s):
                kept = Version(snapshot.facts.tag, snapshot.version, await asyncio.to_thread(self._make, snapshot))
                ended_s = time.monotonic()
                self._kept, self._due_s = kept, ended_s + (ended_s - began_s) / SHARE
            return kept.made
