"""Give each operation its kernel where the device, the dtypes and the shapes have one, and plain MLX elsewhere.

Each operation is defined in plain MLX (plain.py). Some also have a kernel with its own backward pass (cuda.cu, cpu.c).
Kernels have gradients, but no gradients of gradients; plain MLX has both.

Letters: B rows, T positions, C width, H query heads, K key-value heads, D head size, V vocabulary, F outputs.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

from agent.lab.kernels import fused, plain
from agent.lab.kernels.device import kernel_device
from agent.lab.kernels.plain import spans
from agent.lab.kernels.windows import Array, Arrays, Piece, Table

MAX_WIDTH = 4096  # a row of the residual stream must fit the registers of a warp
MAX_SOFTCAP = 40.0  # e^(-2 · cap) must not vanish in float32
MAX_PIECES = 16  # pieces of a row, each a kernel's argument
HEAD_DIMS = (32, 64, 128, 256)
LARGE = 2**16  # number of elements from which a missing kernel costs noticeable time
FLOAT32 = mx.float32


def fitting(
    operation: str, *, activations: Arrays = (), weights: Arrays = (), ids: Arrays = (), can: bool = True
) -> Callable[..., Any]:
    """Return fused's operation if our kernels support these operands, else plain's; warn once if that is slow.

    Kernels need activations of the device's own dtype, float32 weights and ids of any integer type. `can` holds the
    operation's other conditions.
    """
    here, vectors = kernel_device(), (*activations, *weights)
    if here is None or operation in here.WITHOUT:
        return getattr(plain, operation)
    dtypes = [x.dtype for x in activations if x.dtype != here.DTYPE] + [x.dtype for x in weights if x.dtype != FLOAT32]
    odd = [x for x in vectors if x.ndim == 0 or x.size == 0 or x.shape[-1] % 8]
    reason = None
    if odd:
        reason = f"the shape {odd[0].shape}, whose last side must be a multiple of 8"
    elif not can or not all(mx.issubdtype(x.dtype, mx.integer) for x in ids):
        reason = f"these sizes or options, with the shapes {', '.join(str(x.shape) for x in vectors)}"
    elif dtypes:
        reason = f"{dtypes[0]}: activations must be {here.DTYPE}, weights {FLOAT32}"
    elif not here.can_run(*vectors, *ids):
        reason = "arrays inside mx.compile or mx.vmap, which have no value yet"
    if reason is None:
        return getattr(fused, operation)
    if any(x.size >= LARGE for x in vectors):
        say_once(operation, reason)
    return getattr(plain, operation)


@cache
def say_once(operation: str, reason: str) -> None:
    print(
        f"kernels: {operation} runs as plain MLX, which is slower: no kernel for {reason}", file=sys.stderr, flush=True
    )


# ---- the stream -----------------------------------------------------------------------------------------------------


def residual_norm(x: Array) -> tuple[Array, Array]:
    """Return x and its RMS norm; the backward pass adds both gradients in one pass over memory."""
    return fitting("residual_norm", activations=[x], can=x.ndim > 0 and x.shape[-1] <= MAX_WIDTH)(x)


def mix_norm(x: Array, x0: Array, keep: Array, again: Array) -> tuple[Array, Array, Array]:  # each (B, T, C)
    """Return keep · x + again · x0, its RMS norm, and x0.

    Passing x0 on from layer to layer sums its gradient without further operations.
    """
    can = x.ndim > 0 and x.shape == x0.shape and x.shape[-1] <= MAX_WIDTH and keep.ndim == again.ndim == 0
    return fitting("mix_norm", activations=[x, x0], can=can and can_run(keep, again))(x, x0, keep, again)


def gated_add(x: Array, key: Array, value: Array) -> Array:  # each (B, T, C)
    """Return x + σ(norm(x) · norm(key) / √C) · value: as much of a value as its key fits the stream."""
    can = x.ndim > 0 and x.shape == key.shape == value.shape and x.shape[-1] <= MAX_WIDTH
    return fitting("gated_add", activations=[x, key, value], can=can)(x, key, value)


def embedding(table: Array, tokens: Array, dtype: mx.Dtype) -> Array:
    """Return the rows of table (V, C) for tokens (B, T) as dtype (B, T, C); gradients are summed in float32."""
    here = kernel_device()
    can = here is not None and dtype == here.DTYPE and table.ndim == 2
    return fitting("embedding", weights=[table], ids=[tokens], can=can)(table, tokens, dtype)  # (B, T, C)


# ---- matrix products ------------------------------------------------------------------------------------------------


def linear(x: Array, weight: Array) -> Array:
    """Return x (…, C) times the transpose of weight (F, C), in the dtype of x."""
    return fused.linear(x, weight)


def linear_add(residual: Array, x: Array, weight: Array) -> Array:
    """Return residual + linear(x, weight), summed inside the matrix product."""
    same = residual.dtype == x.dtype and residual.shape == (*x.shape[:-1], weight.shape[0])
    return (fused if same else plain).linear_add(residual, x, weight)


# ---- inside a block -------------------------------------------------------------------------------------------------


def relu_squared(x: Array) -> Array:
    """Return max(x, 0)² (arXiv:2109.08668)."""
    return fitting("relu_squared", activations=[x])(x)


def rotary_qkv(
    qkv: Array, values: Table, tokens: Array, *, heads: int, kv_heads: int, head_dim: int, window: int, rope_base: float
) -> list[Piece]:
    """Turn one projection into attention's inputs: normalised and rotated queries and keys, values, cut by window.

    qkv: (B, T, (H + 2K) · D), then, with a value embedding, a gate for each of the K heads; others are ignored.
    With a value embedding `values` (V, K · D), 2σ(gate) times its row for a token is added to the token's value.
    """
    B, T, columns = qkv.shape
    needed = (heads + 2 * kv_heads) * head_dim + (kv_heads if values is not None else 0)
    can = (
        head_dim in HEAD_DIMS
        and columns >= needed
        and tokens.shape == (B, T)
        and (values is None or values.shape[1:] == (kv_heads * head_dim,))
        and len(spans(T, window)) <= MAX_PIECES
    )
    tables = [] if values is None else [values]
    turn = fitting("rotary_qkv", activations=[qkv], weights=tables, ids=[tokens], can=can)
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return turn(qkv, values, tokens, **shape, window=window, rope_base=rope_base)


def attend(pieces: list[Piece]) -> Array:
    """Return the causal softmax attention (B, T, H · D) of each piece's queries to its keys."""
    can = all(k.shape == v.shape and q.shape[2] <= k.shape[2] and q.shape[-1] == k.shape[-1] for q, k, v in pieces)
    return fitting("attend", activations=[array for piece in pieces for array in piece], can=can)(pieces)


# ---- logits and loss ------------------------------------------------------------------------------------------------


def softcap(logits: Array, cap: float) -> Array:
    """Return cap · tanh(logits / cap) in float32: logits between -cap and cap."""
    return fitting("softcap", activations=[logits], can=is_number(cap))(logits, cap)


def cross_entropy(logits: Array, targets: Array) -> Array:
    """Return the loss in nats of each target (…) under logits (…, V), in float32."""
    same = targets.shape == logits.shape[:-1]
    return fitting("cross_entropy", activations=[logits], ids=[targets], can=same)(logits, targets)


def softcapped_cross_entropy(logits: Array, targets: Array, cap: float) -> Array:
    """Return cross_entropy(softcap(logits, cap), targets), one pass forward, one back; logits (…, V), targets (…)."""
    can = targets.shape == logits.shape[:-1] and is_number(cap) and 0 < cap <= MAX_SOFTCAP
    return fitting("softcapped_cross_entropy", activations=[logits], ids=[targets], can=can)(logits, targets, cap)


def is_number(cap: object) -> bool:
    """Return whether a cap is a plain number; a learnt cap is an array, whose gradient only plain MLX computes."""
    return isinstance(cap, (int, float))


# ---- optimizer: float32 in, float32 out, without gradients ----------------------------------------------------------


def adamw(
    p: Array, grad: Array, m: Array, v: Array, *, lr: Array, beta1: float, beta2: float, eps: float, step: Array
) -> tuple[Array, Array, Array]:
    """Take an AdamW step (arXiv:1711.05101) without weight decay, `step` counted from 1.

    Return the parameter, the first and the second moment, all of the shape of p.
    """
    can = p.shape == grad.shape == m.shape == v.shape and are_scalars(lr, step)
    step_of = fitting("adamw", weights=[p, grad, m, v], can=can)
    return step_of(p, grad, m, v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)


def nesterov(momentum: Array, grad: Array, mu: Array) -> tuple[Array, Array]:
    """Return the running mean of the gradients with momentum mu, and Nesterov's update one step ahead."""
    can = momentum.shape == grad.shape and are_scalars(mu)
    return fitting("nesterov", weights=[momentum, grad], can=can)(momentum, grad, mu)


def cautious_step(p: Array, update: Array, scale: Array, *, lr: Array, decay: Array) -> Array:
    """Return p - lr · (step + decay · p where p and step agree in sign), step = update · scale (arXiv:2510.12402).

    p, update: (N, rows, columns), scale: (N, rows, 1) or (N, 1, columns)
    """
    can = p.ndim == 3 and p.shape == update.shape and scale.dtype == mx.float32 and are_scalars(lr, decay)
    can = can and scale.shape in {(*p.shape[:2], 1), (p.shape[0], 1, p.shape[2])} and can_run(scale)
    return fitting("cautious_step", weights=[p, update], can=can)(p, update, scale, lr=lr, decay=decay)


def are_scalars(*numbers: Array) -> bool:
    return all(isinstance(x, Array) and x.ndim == 0 and x.dtype == mx.float32 for x in numbers) and can_run(*numbers)


def can_run(*arrays: Array) -> bool:
    here = kernel_device()
    return here is not None and here.can_run(*arrays)
