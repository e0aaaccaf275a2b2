"""Decide when sources that had no idea are asked again: after a pause, longer each time.

Exhausted ones are asked again only about another best script.
"""

import math
import time
from collections.abc import Callable

from agent.experiment import Attempt

WAITS_S = (30.0, 120.0, 600.0)  # between questions that brought nothing; after the last, the night ends


class Backoff:
    """Tell whether sources may be asked now, and whether they ever will be again."""

    def __init__(self) -> None:
        self._begun = 0  # pauses, since the last idea
        self._until_s: float | None = None  # monotonic; infinite after the last pause; None: no pause
        self._exhausted_at: int | None = None  # the incumbent for which all sources were exhausted

    @property
    def is_pausing(self) -> bool:
        """Return whether no source was asked since the last pause began."""
        return self._until_s is not None

    @property
    def is_over(self) -> bool:
        """Return whether sources are asked no further: after the last pause, or if there is no time for another."""
        return self._until_s == math.inf

    def rests(self, best: Attempt) -> bool:
        """Return whether no source is to be asked now."""
        return self.is_exhausted(best) or (self._until_s is not None and time.monotonic() < self._until_s)

    def is_exhausted(self, best: Attempt) -> bool:
        """Return whether all sources are exhausted, until another script is the best."""
        return self._exhausted_at == best.number

    def exhaust(self, best: Attempt) -> None:
        self._exhausted_at = best.number

    def pause(self, has_time: Callable[[float], bool]) -> float | None:
        """Begin the next pause, and return its seconds; None if it was the last, or if there is no time for it."""
        wait_s = WAITS_S[self._begun] if self._begun < len(WAITS_S) else math.inf
        self._begun += 1
        if wait_s == math.inf or not has_time(wait_s):
            self._until_s = math.inf
            return None
        self._until_s = time.monotonic() + wait_s
        return wait_s

    def ask(self) -> None:
        """Note that the sources are asked again."""
        self._until_s = self._exhausted_at = None

    def reset(self) -> None:
        """Note that there was an idea."""
        self._begun, self._until_s, self._exhausted_at = 0, None, None
