"""Turn windowed attention into plain causal attention on pieces, for which MLX has a fused kernel.

Queries are cut into blocks of window / 2, each with the keys that its last query may see. MLX has no fused kernel for
masks, and pieces compute no score outside the window.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import mlx.core as mx

# what the signatures of this package share
Array = mx.array
Table = Array | None  # a value embedding (V, K · D), where there is one
Arrays = Sequence[Array]
Dtypes = Sequence[mx.Dtype]
Shapes = Sequence[Sequence[int]]
Sizes = Mapping[str, int]


class Piece(NamedTuple):
    """Hold the queries of one block and their keys and values; the last query sees the last key."""

    q: Array  # (B, H, t, D)
    k: Array  # (B, K, s, D), s ≥ t
    v: Array  # (B, K, s, D)


class Span(NamedTuple):
    """Name a block by positions in the row: queries start … stop - 1, keys first … stop - 1."""

    start: int
    stop: int
    first: int


Spans = Sequence[Span]


def spans(T: int, window: int) -> list[Span]:
    """Return blocks in which a query sees at least window / 2 and at most `window` positions, itself included.

    A window of T or more gives exact causal attention in two blocks, which saves a quarter of the scores.
    """
    block = (min(window, T) + 1) // 2
    stops = [*range(block, T, block), T]
    return [Span(start, stop, max(0, stop - window)) for start, stop in zip([0, *stops], stops, strict=False)]


def cut(q: Array, k: Array, v: Array, window: int, *, axis: int) -> list[Piece]:
    """Cut arrays into pieces, as views; `axis` is the axis of the positions."""

    def part(z: Array, start: int, stop: int) -> Array:
        return z[(slice(None),) * axis + (slice(start, stop),)]

    return [
        Piece(part(q, start, stop), part(k, first, stop), part(v, first, stop))
        for start, stop, first in spans(q.shape[axis], window)
    ]
