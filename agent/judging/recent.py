"""Choose the attempts of a long night that it learns from. Pure, and without numpy: `status` asks for them, too."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

LATEST, BLOCK = 300, 100  # attempts that are learnt from: so many, and less than a block more


class Numbered(Protocol):
    """An attempt, or all that has to be known of it here."""

    @property
    def number(self) -> int: ...
    @property
    def parent(self) -> int | None: ...


class Edge(NamedTuple):
    """Hold an attempt's number, and that of the attempt that it was made from."""

    number: int
    parent: int | None


One = TypeVar("One", bound=Numbered)


def recent(history: Sequence[One]) -> Sequence[One]:
    """Return the latest attempts with all their ancestors, in their order; a night of LATEST attempts is whole.

    A decision is about an edit and the line of scripts that it stands on, so that line is always there. All others only
    teach what edits bring and how far seeds move scores, and that changes in the course of a night: early edits find
    large gains, late ones hardly any, and the script that they edit is another one. Hundreds of edits tell it as well
    as thousands, and a decision costs the same in the tenth week as in the first night. Old attempts leave by the
    block, so that what was learnt from the first of them stays good for many decisions.
    """
    count = history[-1].number + 1 if history else 0
    if count < LATEST + BLOCK:
        return history
    first = (count - LATEST) // BLOCK * BLOCK
    by_number = {attempt.number: attempt for attempt in history}
    chosen: set[int] = set()
    for attempt in history:
        number: int | None = attempt.number if attempt.number >= first else None
        while number in by_number and number not in chosen:
            chosen.add(number)
            number = by_number[number].parent
    return [attempt for attempt in history if attempt.number in chosen]


def numbered(history: Sequence[One], number: int) -> One | None:
    """Return the attempt of this number, though others may be missing."""
    if 0 <= number < len(history) and history[number].number == number:
        return history[number]
    return next((attempt for attempt in history if attempt.number == number), None)
