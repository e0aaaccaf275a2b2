"""Turn windowed attention into plain causal attention on pieces, for which MLX has a fused kernel.

Queries are cut into blocks of window / 2, each with the keys that its last query may see. MLX has no fused kernel for
masks, and pieces compute no score outside the window.
"""

from typing import NamedTuple

import mlx.core as mx


class Piece(NamedTuple):
    """Hold the queries of one block and their keys and values; the last query sees the last key."""

    q: mx.array  # (B, H, t, D)
    k: mx.array  # (B, K, s, D), s ≥ t
    v: mx.array  # (B, K, s, D)


class Span(NamedTuple):
    """Name a block by positions in the row: queries start … stop - 1, keys first … stop - 1."""

    start: int
    stop: int
    first: int


def spans(T: int, window: int) -> list[Span]:
    """Return blocks in which a query sees at least window / 2 and at most `window` positions, itself included.

    A window of T or more gives exact causal attention in two blocks, which saves a quarter of the scores.
    """
    block = (min(window, T) + 1) // 2
    stops = [*range(block, T, block), T]
    return [Span(start, stop, max(0, stop - window)) for start, stop in zip([0, *stops], stops, strict=False)]


def cut(q: mx.array, k: mx.array, v: mx.array, window: int, *, axis: int) -> list[Piece]:
    """Cut arrays into pieces, as views; `axis` is the axis of the positions."""

    def part(z: mx.array, start: int, stop: int) -> mx.array:
        return z[(slice(None),) * axis + (slice(start, stop),)]

    return [
        Piece(part(q, start, stop), part(k, first, stop), part(v, first, stop))
        for start, stop, first in spans(q.shape[axis], window)
    ]
