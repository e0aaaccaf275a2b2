"""Cut queries, keys and values into pieces for a kernel, whose axis of positions may be another than the script's."""

from collections.abc import Mapping, Sequence

import mlx.core as mx

from agent.lab.kernels.plain import Piece, spans

# types of this package's signatures
Array = mx.array
Table = Array | None  # a value embedding (V, K · D), where there is one
Arrays = Sequence[Array]
Dtypes = Sequence[mx.Dtype]
Shapes = Sequence[Sequence[int]]
Sizes = Mapping[str, int]
Span = tuple[int, int, int]  # start, stop and first of a block, as in plain.spans
Spans = Sequence[Span]


def cut(q: Array, k: Array, v: Array, window: int, *, axis: int) -> list[Piece]:
    """Cut arrays into a list of Piece, as views; `axis` is the axis of the positions."""

    def part(z: Array, start: int, stop: int) -> Array:
        return z[(slice(None),) * axis + (slice(start, stop),)]

    return [
        Piece(part(q, start, stop), part(k, first, stop), part(v, first, stop))
        for start, stop, first in spans(q.shape[axis], window)
    ]
