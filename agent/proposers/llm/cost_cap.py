"""Keep the calls to language models within what a night may spend, though several are in flight at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.errors import Unanswered

POLL_S = 0.1  # how often a thread that waits looks whether the night is stopping


class CostCap:
    """Count calls that are over with their costs, and calls in flight with the most that each may cost.

    max_usd: the cap; None: there is none. stopped: whether the night is stopping.
    """

    def __init__(self, max_usd: float | None, stopped: Callable[[], bool]) -> None:
        self._max_usd, self._stopped = max_usd, stopped
        self._changed = threading.Condition()
        self._before_usd: float | None = None  # spent before the first call of this process
        self._spent_usd = 0.0  # by the calls of this process that are over
        self._in_flight_usd = 0.0

    @contextmanager
    def call(self, most_usd: float, known_usd: float) -> Iterator[None]:
        """Make room for a call that may cost so much; wait for others in flight where they may reach the cap.

        known_usd: spent by the night, as far as the caller knows. Raise Unanswered once the cap is reached, or if the
        night is stopping.
        """
        with self._changed:
            if self._before_usd is None:
                self._before_usd = known_usd
            while True:
                if self._stopped():
                    raise Unanswered("not asked, because the night is stopping")
                spent_usd = max(self._before_usd + self._spent_usd, known_usd)
                if self._max_usd is None or spent_usd + self._in_flight_usd < self._max_usd:
                    break
                if spent_usd >= self._max_usd:
                    raise Unanswered(f"${spent_usd:.2f} of --max-cost {self._max_usd:g} are spent; raise it to ask on")
                self._changed.wait(POLL_S)
            self._in_flight_usd += most_usd
        try:
            yield
        finally:
            with self._changed:
                self._in_flight_usd -= most_usd
                self._changed.notify_all()

    def spend(self, usd: float) -> None:
        """Count a call that is over, while its room is still taken."""
        with self._changed:
            self._spent_usd += usd
