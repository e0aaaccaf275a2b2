"""Part what a chart shows, thin it in a long night, and say so."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the items, evenly spread."""
    if len(items) <= most:
        return list(items)
    return [items[at * len(items) // most] for at in range(most)]


def said(shown: Collection[object], there: Collection[object], words: str) -> list[str]:
    """Say that only some of the items are shown; say nothing where all are."""
    return [f"{len(shown):,} of {len(there):,} {words} are shown"] if len(shown) < len(there) else []


def apart(items: Iterable[T], held: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the items for which something holds, and the others."""
    found: tuple[list[T], list[T]] = [], []
    for item in items:
        found[not held(item)].append(item)
    return found
