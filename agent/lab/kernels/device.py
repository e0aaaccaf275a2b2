"""Choose the kernels of this process, and define the interface of a device's module for fused.py."""

import os
import sys
from functools import cache
from typing import Protocol

import mlx.core as mx

from agent.lab import hardware
from agent.lab.kernels.windows import Array, Arrays, Dtypes, Piece, Shapes, Sizes, Spans


class Device(Protocol):
    """Define the common interface of cuda.py and cpu.py."""

    DTYPE: mx.Dtype  # type of activations; weights are float32
    WITHOUT: frozenset[str]  # operations that have no kernel here
    POSITION_AXIS: int  # axis of the positions in queries, keys and values that its kernels write

    def available(self) -> str | None:
        """Return None if the kernels can run here, else the reason why not."""

    def can_run(self, *arrays: Array) -> bool:
        """Return whether the kernels can run on these arrays now."""

    def launch(
        self, kernel: str, inputs: Arrays, shapes: Shapes, sizes: Sizes, work: int,
        dtypes: Dtypes = (), blocks: Spans = (),
    ) -> list[Array]:  # fmt: skip
        """Run one kernel over `work` rows (or its other unit); outputs have DTYPE by default.

        A size with an upper-case name may be compiled in; one in lower case may differ from call to call.
        """

    def head_shape(self, B: int, T: int, heads: int, D: int) -> tuple[int, ...]:
        """Return the shape in which its kernels write queries, keys or values."""

    def by_head(self, array: Array) -> Array:
        """Return such an array as (B, heads, T, D)."""

    def partial_sums(self, rows: int) -> int:
        """Return the number of partial sums that its kernels return for a sum over all rows."""

    def embedding_gradient(self, rows: Array, ids: Array, vocab_size: int) -> Array:
        """Return for each id the sum of its rows, (V, C) in float32; rows: (N, C), ids: (N,)."""

    def attend(self, pieces: list[Piece]) -> Array: ...

    def cross_entropy(self, logits: Array, targets: Array) -> Array: ...


@cache
def kernel_device() -> Device | None:
    """Return this device's kernels; None if plain MLX runs, with one warning on NVIDIA and Linux."""
    kind, wanted = hardware.device_kind(), os.environ.get("NIGHTSHIFT_KERNELS", "")
    if wanted not in ("", "plain"):
        print(f"kernels: NIGHTSHIFT_KERNELS is {wanted!r}: write plain, or leave it out", file=sys.stderr)
        raise SystemExit(2)
    if "metal" in (kind, hardware.preset()) or wanted == "plain":
        return None
    found: Device
    if kind == "cuda":
        from agent.lab.kernels import cuda as found
    else:
        from agent.lab.kernels import cpu as found
    reason = found.available()
    if reason is not None:
        print(f"kernels: {reason}; training goes on with plain MLX, more slowly", file=sys.stderr)
        return None
    return found


def this_device() -> Device:
    """Return kernel_device(), which fused.py may assume to exist."""
    found = kernel_device()
    assert found is not None, "the package sends nothing here without kernels"
    return found
