"""A long sequence of frozen records in chunks: what is asked of all of them is found out once for each chunk.

A night asks the same of all its attempts at every step: which are kept, and whether a script was tried. One step
changes one attempt. So only its chunk is looked at again, and a step costs the same at the ten thousandth attempt as at
the hundredth.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

Item = TypeVar("Item")
Found = TypeVar("Found")
SIZE = 128  # records of a chunk


class Chunk(Generic[Item]):
    """Hold some records that follow each other, and the answers about them."""

    __slots__ = ("_answers", "items")

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.items = items
        self._answers: dict[object, Any] = {}

    def once(self, ask: Callable[[tuple[Item, ...]], Found]) -> Found:
        """Return the answer of a pure function of these records; call it only once."""
        if ask not in self._answers:
            self._answers[ask] = ask(self.items)
        return cast(Found, self._answers[ask])


class Chunks(Sequence[Item]):
    """Hold a sequence that never changes; a changed copy of it shares all chunks but one with it."""

    __slots__ = ("_ends", "chunks")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        rest = iter(items)
        self._set(tuple(Chunk(some) for some in iter(lambda: tuple(islice(rest, SIZE)), ())))

    def _set(self, chunks: tuple[Chunk[Item], ...]) -> None:
        self.chunks = chunks
        self._ends = tuple(accumulate(len(chunk.items) for chunk in chunks))

    def _with(self, at: int, *items: tuple[Item, ...]) -> "Chunks[Item]":
        """Return the sequence with chunks of these items in the place of one chunk."""
        made: Chunks[Item] = Chunks()
        made._set((*self.chunks[:at], *(Chunk(some) for some in items if some), *self.chunks[at + 1 :]))
        return made

    def added(self, items: Iterable[Item]) -> "Chunks[Item]":
        """Return the sequence with these items at its end."""
        made = self
        for item in items:
            last = made.chunks[-1].items if made.chunks else ()
            ends = (last, (item,)) if len(last) >= SIZE else ((*last, item),)
            made = made._with(max(0, len(made.chunks) - 1), *ends)
        return made

    def replaced(self, index: int, item: Item) -> "Chunks[Item]":
        """Return the sequence with this item in the place of another."""
        at, place = self._place(index)
        items = self.chunks[at].items
        return self._with(at, (*items[:place], item, *items[place + 1 :]))

    def without(self, index: int) -> "Chunks[Item]":
        """Return the sequence without one item."""
        at, place = self._place(index)
        items = self.chunks[at].items
        return self._with(at, (*items[:place], *items[place + 1 :]))

    def _place(self, index: int) -> tuple[int, int]:
        """Return the number of an item's chunk, and the item's place in that."""
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not among {len(self)} items")
        at = bisect_right(self._ends, index)
        return at, index - (self._ends[at - 1] if at else 0)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(chunk.items for chunk in self.chunks)

    def __reversed__(self) -> Iterator[Item]:
        return chain.from_iterable(reversed(chunk.items) for chunk in reversed(self.chunks))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Item | tuple[Item, ...]:
        if not isinstance(index, slice):
            at, place = self._place(index.__index__())
            return self.chunks[at].items[place]
        first, end, step = index.indices(len(self))
        if step != 1 or first >= end:
            return tuple(self)[index]
        (begin, skipped), (last, _) = self._place(first), self._place(end - 1)
        items = chain.from_iterable(chunk.items for chunk in self.chunks[begin : last + 1])
        return tuple(islice(items, skipped, skipped + end - first))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, whose hashes are others


def chunks_of(items: Sequence[Item]) -> Sequence[Chunk[Item]]:
    """Return the chunks of a sequence; any other than Chunks is one chunk, whose answers last as long as the call."""
    return items.chunks if isinstance(items, Chunks) else (Chunk(tuple(items)),)


def by_chunk(items: Sequence[Item], ask: Callable[[tuple[Item, ...]], Found]) -> list[Found]:
    """Return the answers of a pure function about each chunk."""
    return [chunk.once(ask) for chunk in chunks_of(items)]
