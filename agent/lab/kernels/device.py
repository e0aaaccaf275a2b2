"""Choose the kernels of this process, and define the interface of a device's module for fused.py."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

import mlx.core as mx

from agent.lab import hardware
from agent.lab.kernels.windows import Piece, Span


class Device(Protocol):
    """Define the common interface of cuda.py and cpu.py."""

    DTYPE: mx.Dtype  # of activations; weights are float32
    POSITION_AXIS: int  # axis of the positions in queries, keys and values that its kernels write

    def available(self) -> str | None:
        """Return None if the kernels can run here, else the reason why not."""

    def can_run(self, *arrays: mx.array) -> bool:
        """Return whether the kernels can run on these arrays now."""

    def launch(
        self,
        kernel: str,
        inputs: Sequence[mx.array],
        shapes: Sequence[Sequence[int]],
        sizes: Mapping[str, int],
        work: int,
        dtypes: Sequence[mx.Dtype] | None = None,
        *,
        blocks: Sequence[Span] = (),
    ) -> list[mx.array]:
        """Run one kernel over `work` rows (or its other unit); outputs have DTYPE by default.

        A size with an upper-case name may be compiled in; one in lower case may differ from call to call.
        """

    def head_shape(self, B: int, T: int, heads: int, D: int) -> tuple[int, ...]:
        """Return the shape in which its kernels write queries, keys or values."""

    def by_head(self, array: mx.array) -> mx.array:
        """Return such an array as (B, heads, T, D)."""

    def partial_sums(self, rows: int) -> int:
        """Return the number of partial sums that its kernels return for a sum over all rows."""

    def embedding_gradient(self, rows: mx.array, ids: mx.array, vocab_size: int) -> mx.array:
        """Return for each id the sum of its rows, (V, C) in float32; rows: (N, C), ids: (N,)."""

    def attend(self, pieces: list[Piece]) -> mx.array: ...

    def cross_entropy(self, logits: mx.array, targets: mx.array) -> mx.array: ...


@cache
def kernel_device() -> Device | None:
    """Return this device's kernels; None if plain MLX runs, with one warning on NVIDIA and Linux."""
    kind, wanted = hardware.device_kind(), os.environ.get("NIGHTSHIFT_KERNELS", "")
    if wanted not in ("", "plain"):
        print(f"kernels: NIGHTSHIFT_KERNELS is {wanted!r}: write plain, or leave it out", file=sys.stderr)
        raise SystemExit(2)
    if "metal" in (kind, hardware.preset()) or wanted == "plain":
        return None
    found = _module(kind)
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


def _module(kind: str) -> Device:
    if kind == "cuda":
        from agent.lab.kernels import cuda

        return cuda
    from agent.lab.kernels import cpu

    return cpu
