"""Remember which crashed attempts their sources may repair: each once, as soon as it has crashed."""

from agent.experiment import Attempt, History
from agent.night.briefing.brief import wants_repair


class Repairs:
    """Follow the attempts of a night; several may be in flight, and the one that crashes need not be the last.

    Of what crashed before, only the last attempt is repaired still: a night that is resumed goes on, not back.
    """

    def __init__(self, history: History) -> None:
        self._seen = len(history)
        self._undecided = {one.number for one in history if one.decision is None}
        self._due: list[int] = []
        self._passed: set[int] = set()

    def due(self, history: History) -> list[Attempt]:
        """Return the crashed attempts that were not given to a source yet, the oldest first."""
        self._undecided.update(range(self._seen, len(history)))
        self._seen = len(history)
        decided = [number for number in sorted(self._undecided) if history[number].decision is not None]
        self._undecided.difference_update(decided)
        latest = [len(history) - 1] if history else []
        numbers = dict.fromkeys((*self._due, *decided, *latest))
        self._due = [number for number in numbers if number not in self._passed and wants_repair(history[number:][:1])]
        return [history[number] for number in self._due]

    def passed(self, number: int) -> None:
        """Do not give an attempt to a source again."""
        self._passed.add(number)
