"""Which kernels this process runs, and what a device's module offers to fused.py."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

import mlx.core as mx

import hardware
from kernels.windows import Piece, Span


class Device(Protocol):
    """What cuda.py and cpu.py have in common."""

    DTYPE: mx.Dtype  # of activations; weights are float32
    POSITION_AXIS: int  # where positions are in the queries, keys and values that its kernels write

    def available(self) -> str | None:
        """None when the kernels can run here, else the reason why not."""

    def can_run(self, *arrays: mx.array) -> bool:
        """Whether they can run on these now."""

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
        """Run one kernel, over `work` rows or whatever its unit is; outputs are of DTYPE where nothing is said.

        A size whose name is upper-case may be compiled in, one in lower case differs from call to call.
        """

    def head_shape(self, B: int, T: int, heads: int, D: int) -> tuple[int, ...]:
        """The shape in which its kernels write queries, keys or values."""

    def by_head(self, array: mx.array) -> mx.array:
        """Such an array as (B, heads, T, D)."""

    def partial_sums(self, rows: int) -> int:
        """How many parts a sum over all rows comes in."""

    def embedding_gradient(self, rows: mx.array, ids: mx.array, vocab_size: int) -> mx.array:
        """rows: (N, C), ids: (N,) → (V, C) float32, the sums of the rows of each id."""

    def attend(self, pieces: list[Piece]) -> mx.array: ...

    def cross_entropy(self, logits: mx.array, targets: mx.array) -> mx.array: ...


@cache
def kernel_device() -> Device | None:
    """The kernels of this device; None where plain MLX runs, which on NVIDIA and Linux is said once."""
    kind, wanted = hardware.device_kind(), os.environ.get("NIGHTSHIFT_KERNELS", "")
    if wanted not in ("", "plain"):
        print(f"kernels: NIGHTSHIFT_KERNELS is {wanted!r}: write plain, or leave it out", file=sys.stderr)
        raise SystemExit(2)
    if kind == "metal" or wanted == "plain":
        return None
    found = _module(kind)
    reason = found.available()
    if reason is not None:
        print(f"kernels: {reason}; training goes on with plain MLX, more slowly", file=sys.stderr)
        return None
    return found


def this_device() -> Device:
    """kernel_device(), where there is one, as fused.py may take for granted."""
    found = kernel_device()
    assert found is not None, "the package sends nothing here without kernels"
    return found


def _module(kind: str) -> Device:
    if kind == "cuda":
        from kernels import cuda

        return cuda
    from kernels import cpu

    return cpu
