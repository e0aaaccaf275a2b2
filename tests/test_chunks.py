"""A sequence in chunks equals the tuple of its items, and is asked only where it has changed."""

import pytest

from agent.experiment.chunks import SIZE, Chunks, by_chunk

MANY = tuple(range(5 * SIZE + 3))


def test_it_is_the_tuple_that_it_was_made_from():
    chunks = Chunks(MANY)
    assert (len(chunks), tuple(chunks), chunks[-1], chunks[SIZE]) == (len(MANY), MANY, MANY[-1], SIZE)
    for part in (slice(SIZE - 1, 2 * SIZE + 1), slice(-3, None), slice(2), slice(9, 3), slice(None, None, -1)):
        assert chunks[part] == MANY[part]
    for index in (len(MANY), -len(MANY) - 1):
        with pytest.raises(IndexError, match="is not among"):
            chunks[index]
    assert (Chunks() == (), Chunks()[:1], len(Chunks())) == (True, (), 0)


def test_a_change_makes_another_sequence():
    chunks = Chunks(MANY)
    assert chunks.replaced(SIZE, -1) == (*MANY[:SIZE], -1, *MANY[SIZE + 1 :])
    assert chunks.without(0) == MANY[1:]
    assert chunks.without(0)[SIZE - 1] == SIZE
    assert Chunks([7]).without(0) == ()
    assert Chunks().added(MANY) == chunks == MANY


def test_only_what_has_changed_is_asked_again():
    asked: list[int] = []

    def total(items: tuple[int, ...]) -> int:
        asked.extend(items)
        return sum(items)

    chunks = Chunks(MANY)
    assert sum(by_chunk(chunks, total)) == sum(MANY)
    asked.clear()
    for step in range(10):
        chunks = chunks.replaced(2 * SIZE, step).added([step])
        assert sum(by_chunk(chunks.without(3 * SIZE), total)) == sum(chunks) - 3 * SIZE
    assert len(asked) <= 10 * 3 * SIZE
    assert by_chunk([1, 2], total) == [3]
