"""Pack documents into full rows of tokens, for training."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

POOL = 1000  # number of pieces that packing chooses from


@dataclass(frozen=True, eq=False)
class Tokens:
    """One split as flat arrays; every document is BOS and its text."""

    tokens: np.ndarray  # (N,) uint16
    offsets: np.ndarray  # (D+1,) int64: document d is tokens[offsets[d]:offsets[d+1]]


def pack_rows(tokens: Tokens, bos: int, *, seq_len: int, seed: int) -> Iterator[np.ndarray]:  # each (T+1,) int32
    """Yield full rows without end, made of whole or cut documents, each after BOS.

    Documents are cut into pieces that fit a row, and each epoch shuffles the pieces, so rows are always a fair sample
    of the corpus. A row takes a random piece of the pool, then repeatedly the longest that fits the rest. Every token
    of text is used once in an epoch, except the last row's worth, which moves to the next one. Raise ValueError if no
    document has text.
    """
    if len(tokens.tokens) < len(tokens.offsets):
        raise ValueError(f"{len(tokens.tokens)} documents without text cannot fill a row")
    pool: list[tuple[int, int]] = []  # (length, start) of text without BOS, sorted
    for epoch in itertools.count():
        rng = np.random.default_rng((seed, epoch))
        pieces = _shuffled_pieces(tokens.offsets, seq_len, rng)
        while True:
            for piece in itertools.islice(pieces, POOL - len(pool)):
                insort(pool, piece)
            if len(pool) < POOL and sum(length + 1 for length, _ in pool) <= seq_len:
                break
            yield _fill_row(np.empty(seq_len + 1, np.int32), tokens.tokens, bos, pool, rng)


def _shuffled_pieces(offsets: np.ndarray, seq_len: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield (length, start) of every piece of text in random order, at most seq_len tokens long, without BOS."""
    lengths = np.diff(offsets) - 1  # (D,)
    counts = -(-lengths // seq_len)  # pieces of each document
    document = np.repeat(np.arange(len(lengths)), counts)
    nth = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = rng.permutation(len(document))
    document, at = document[order], nth[order] * seq_len
    starts = offsets[:-1][document] + 1 + at
    sizes = np.minimum(lengths[document] - at, seq_len)
    for block in range(0, len(order), 4096):  # convert to Python numbers, a block at a time
        yield from zip(sizes[block : block + 4096].tolist(), starts[block : block + 4096].tolist(), strict=True)


def _fill_row(
    row: np.ndarray, tokens: np.ndarray, bos: int, pool: list[tuple[int, int]], rng: np.random.Generator
) -> np.ndarray:
    """Fill a row with the best-fitting pieces, O(log n) each; the rest of a cut piece goes back to the pool.

    The pool must hold enough text to fill the row.
    """
    at = 0
    pick = int(rng.integers(len(pool)))
    while at < len(row):
        length, start = pool.pop(pick)
        room = len(row) - at - 1  # room after BOS
        if length > room:
            insort(pool, (length - room, start + room))
            length = room
        row[at] = bos
        row[at + 1 : at + 1 + length] = tokens[start : start + length]
        at += 1 + length
        # the longest that fits; -1, the longest of all, if none fits: it is cropped
        pick = bisect_right(pool, (len(row) - at - 1, math.inf)) - 1
    return row
