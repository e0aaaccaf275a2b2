"""The operations of a small GPT, each as plain MLX (plain.py) and, where it pays, as a kernel with a backward pass of
its own (cuda.cu, cpu.c). A kernel takes over by itself where there is one for the device, the dtype and the shape at
hand; an edit that writes an operation out in MLX instead simply runs as MLX.

`NIGHTSHIFT_KERNELS=plain` in the environment leaves every kernel aside.

Letters: B rows, T positions, C width, H query heads, K key-value heads, D head size, V vocabulary, F outputs.
"""

from typing import Any

import mlx.core as mx

from kernels import fused, plain
from kernels.device import kernel_device
from kernels.plain import norm
from kernels.windows import Piece, spans

__all__ = [
    "Piece",
    "adamw",
    "attend",
    "cautious_step",
    "cross_entropy",
    "embedding",
    "kernel_device",
    "linear",
    "linear_add",
    "mix_norm",
    "nesterov",
    "norm",
    "relu_squared",
    "residual_norm",
    "rotary_qkv",
    "softcap",
    "softcapped_cross_entropy",
]

MAX_WIDTH = 4096  # a row of the stream lives in the registers of a warp
MAX_SOFTCAP = 40.0  # e^(-2 · cap) must not vanish in float32
MAX_PIECES = 16  # of a row; a kernel has so many arguments
HEAD_DIMS = (32, 64, 128, 256)


def implementation(x: mx.array, *, dtype: mx.Dtype | None = None, can: bool = True) -> Any:
    """fused or plain: whether our kernels can work on x, in its dtype and in rows that can be read as vectors."""
    here = kernel_device()
    if here is None or not can or (dtype or x.dtype) != here.DTYPE or x.shape[-1] % 8 or not here.can_run(x):
        return plain
    return fused


def residual_norm(x: mx.array) -> tuple[mx.array, mx.array]:
    """x and its RMS norm. Where both are used, the backward pass adds their gradients in one pass over memory."""
    return implementation(x, can=x.shape[-1] <= MAX_WIDTH).residual_norm(x)


def mix_norm(
    x: mx.array, x0: mx.array, keep: mx.array, again: mx.array
) -> tuple[mx.array, mx.array, mx.array]:  # each (B, T, C)
    """keep · x + again · x0, its RMS norm, and x0: handed on from layer to layer, it sums its gradient on the way."""
    return implementation(x, can=x.shape[-1] <= MAX_WIDTH).mix_norm(x, x0, keep, again)


def embedding(table: mx.array, tokens: mx.array, dtype: mx.Dtype) -> mx.array:
    """The rows of table (V, C) for tokens (B, T), as dtype; gradients are summed in float32."""
    return implementation(table, dtype=dtype).embedding(table, tokens, dtype)  # (B, T, C)


def linear(x: mx.array, weight: mx.array) -> mx.array:
    """x (…, C) times weight (F, C) transposed, in the dtype of x."""
    return fused.linear(x, weight)


def linear_add(residual: mx.array, x: mx.array, weight: mx.array) -> mx.array:
    """residual + linear(x, weight), summed inside the matrix product."""
    return fused.linear_add(residual, x, weight)


def relu_squared(x: mx.array) -> mx.array:
    """max(x, 0)² (arXiv:2109.08668)."""
    return implementation(x).relu_squared(x)


def rotary_qkv(
    qkv: mx.array,
    values: mx.array | None,
    tokens: mx.array,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int,
    rope_base: float,
) -> list[Piece]:
    """From one projection to what attention needs: normalised and rotated queries and keys, values, cut by `window`.

    With a value embedding `values` (V, K · D), what it holds for a token is added to the token's value, 2σ(gate) times.
    qkv: (B, T, (H + 2K) · D), then, with a value embedding, a gate for each of the K heads; more columns are ignored.
    """
    can = head_dim in HEAD_DIMS and len(spans(qkv.shape[1], window)) <= MAX_PIECES
    return implementation(qkv, can=can).rotary_qkv(
        qkv,
        values,
        tokens,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        window=window,
        rope_base=rope_base,
    )


def attend(pieces: list[Piece]) -> mx.array:
    """Causal softmax attention of the queries of each piece to its keys → (B, T, H · D)."""
    return implementation(pieces[0].q).attend(pieces)


def softcap(logits: mx.array, cap: float) -> mx.array:
    """cap · tanh(logits / cap) in float32: logits that live in ±cap."""
    return implementation(logits).softcap(logits, cap)


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """The loss in nats of each target (…) under logits (…, V), in float32; nothing is differentiated."""
    return implementation(logits).cross_entropy(logits, targets)


def softcapped_cross_entropy(logits: mx.array, targets: mx.array, cap: float) -> mx.array:
    """cross_entropy(softcap(logits, cap), targets), in one pass forward and one back; logits (…, V), targets (…)."""
    return implementation(logits, can=cap <= MAX_SOFTCAP).softcapped_cross_entropy(logits, targets, cap)


# ---- optimizer: float32 in, float32 out; nothing is differentiated --------------------------------------------------


def adamw(
    p: mx.array,
    grad: mx.array,
    m: mx.array,
    v: mx.array,
    *,
    lr: mx.array,
    beta1: float,
    beta2: float,
    eps: float,
    step: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:
    """AdamW (arXiv:1711.05101) without weight decay, `step` counted from 1 → parameter, first and second moment."""
    return for_weights(p).adamw(p, grad, m, v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)


def nesterov(momentum: mx.array, grad: mx.array, mu: mx.array) -> tuple[mx.array, mx.array]:
    """The running mean of the gradients with memory mu, and Nesterov's look ahead: where it will be one step on."""
    return for_weights(momentum).nesterov(momentum, grad, mu)


def cautious_step(p: mx.array, update: mx.array, scale: mx.array, *, lr: mx.array, decay: mx.array) -> mx.array:
    """p - lr · (step + decay · p where p and step agree in sign), step = update · scale (arXiv:2510.12402).

    p, update: (N, rows, columns), scale: (N, rows, 1) or (N, 1, columns)
    """
    return for_weights(p).cautious_step(p, update, scale, lr=lr, decay=decay)


def for_weights(p: mx.array) -> Any:
    here = kernel_device()
    return implementation(p, dtype=here.DTYPE if here and p.dtype == mx.float32 else None)
