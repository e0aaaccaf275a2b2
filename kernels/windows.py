"""How a window becomes plain causal attention: queries are cut into blocks of window / 2, each with the keys that its
last query may see. Every piece has a fused kernel (masks have none), and no score outside the window is computed.
"""

from typing import NamedTuple

import mlx.core as mx


class Piece(NamedTuple):
    """Queries of one block and the keys and values that they may see; the last query sees the last key."""

    q: mx.array  # (B, H, t, D)
    k: mx.array  # (B, K, s, D), s ≥ t
    v: mx.array  # (B, K, s, D)


class Span(NamedTuple):
    """A block in positions of the row: its queries are start … stop - 1, its keys first … stop - 1."""

    start: int
    stop: int
    first: int


def spans(T: int, window: int) -> list[Span]:
    """Blocks in which a query reaches back over at least window / 2 and at most `window` positions, itself included.

    A window of T or more is exact causal attention in two blocks, which spares a quarter of the scores.
    """
    block = (min(window, T) + 1) // 2
    stops = [*range(block, T, block), T]
    return [Span(start, stop, max(0, stop - window)) for start, stop in zip([0, *stops], stops, strict=False)]


def cut(q: mx.array, k: mx.array, v: mx.array, window: int, *, axis: int) -> list[Piece]:
    """Views of the pieces; `axis` is that of the positions."""

    def part(z: mx.array, start: int, stop: int) -> mx.array:
        return z[(slice(None),) * axis + (slice(start, stop),)]

    return [
        Piece(part(q, start, stop), part(k, first, stop), part(v, first, stop))
        for start, stop, first in spans(q.shape[axis], window)
    ]
