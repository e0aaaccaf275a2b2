"""Define every operation of train_mlx.py in plain MLX: what runs without a kernel, and the text that @fast compares.

Each function stands here as in the script, which says what it does. A function of the script has a kernel while it, and
all that it reads, equals what stands here; comments, docstrings and layout may differ.
"""

from functools import partial
from typing import NamedTuple

import mlx.core as mx

# ---- the stream -----------------------------------------------------------------------------------------------------

EPS = 1e-6  # added inside every norm


def norm(x: mx.array) -> mx.array:
    return mx.fast.rms_norm(x, None, EPS)


def embedding(table: mx.array, tokens: mx.array, dtype: mx.Dtype) -> mx.array:
    return table[tokens].astype(dtype)


def residual_norm(x: mx.array) -> tuple[mx.array, mx.array]:
    return x, norm(x)


def mix_norm(x: mx.array, x0: mx.array, keep: mx.array, again: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    x = keep.astype(x.dtype) * x + again.astype(x.dtype) * x0
    return x, norm(x), x0


def gated_add(x: mx.array, key: mx.array, value: mx.array) -> mx.array:
    fit = mx.sum(norm(x) * norm(key), axis=-1, keepdims=True) * x.shape[-1] ** -0.5  # (B, T, 1)
    return x + mx.sigmoid(fit) * value


# ---- matrix products ------------------------------------------------------------------------------------------------


def linear(x: mx.array, weight: mx.array) -> mx.array:
    return x @ weight.astype(x.dtype).T


def linear_add(residual: mx.array, x: mx.array, weight: mx.array) -> mx.array:
    return mx.addmm(residual, x, weight.astype(x.dtype).T)


# ---- attention and MLP ----------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    q: mx.array  # (B, H, t, D)
    k: mx.array  # (B, K, s, D), s ≥ t
    v: mx.array  # (B, K, s, D)


def spans(T: int, window: int) -> list[tuple[int, int, int]]:
    block = (min(window, T) + 1) // 2
    blocks = [(start, min(start + block, T)) for start in range(0, T, block)]
    return [(start, stop, max(0, stop - window)) for start, stop in blocks]


def rotary_qkv(
    qkv: mx.array, values: mx.array | None, tokens: mx.array, *,
    heads: int, kv_heads: int, head_dim: int, window: int, rope_base: float,
) -> list[Piece]:  # fmt: skip
    B, T, _ = qkv.shape
    H, K, D = heads, kv_heads, head_dim
    q, k, v, gates = mx.split(qkv, [H * D, (H + K) * D, (H + 2 * K) * D], axis=-1)
    q, k, v = (z.reshape(B, T, -1, D) for z in (q, k, v))
    if values is not None:
        gate = 2 * mx.sigmoid(gates[..., :K, None])  # (B, T, K, 1)
        v = v + gate * embedding(values, tokens, v.dtype).reshape(v.shape)
    # A rotation keeps lengths, so normalising before it is the same as after, and saves a copy.
    q, k, v = (z.transpose(0, 2, 1, 3) for z in (norm(q), norm(k), v))  # (B, H, T, D)
    rope = partial(mx.fast.rope, dims=D, traditional=False, base=rope_base, scale=1.0, offset=0)
    q, k = rope(q), rope(k)
    blocks = spans(T, window)
    return [Piece(q[:, :, a:b], k[:, :, first:b], v[:, :, first:b]) for a, b, first in blocks]


def attend(pieces: list[Piece]) -> mx.array:
    outputs = [
        mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal").transpose(0, 2, 1, 3)
        for q, k, v in pieces
    ]
    whole = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)  # (B, T, H, D)
    return whole.reshape(*whole.shape[:2], -1)


def relu_squared(x: mx.array) -> mx.array:
    return mx.square(mx.maximum(x, 0))


# ---- n-grams: integers of (B, T), which take a thousandth of the memory of the model's activations -------------------


def mixed(h: mx.array) -> mx.array:
    h = (h ^ (h >> 16)) * mx.array(0x85EBCA6B, mx.uint32)
    h = (h ^ (h >> 13)) * mx.array(0xC2B2AE35, mx.uint32)
    return h ^ (h >> 16)


def ngram_hash(tokens: mx.array, order: int, salt: int = 0) -> mx.array:
    T = tokens.shape[1]
    spread = (tokens.astype(mx.uint32) + 1) * mx.array(0x9E3779B1, mx.uint32)
    padded = mx.pad(spread, [(0, 0), (order - 1, 0)])
    h = mx.full(tokens.shape, (order * 0x9E3779B1 + salt * 0x7FEB352D) % 2**32, mx.uint32)
    for first in range(order):
        h = mixed(h + padded[:, first : first + T])
    return h


def ngram_ids(tokens: mx.array, order: int, rows: int, salt: int = 0) -> mx.array:
    return (ngram_hash(tokens, order, salt) % mx.array(rows, mx.uint32)).astype(mx.int32)


def last_seen(tokens: mx.array, order: int) -> mx.array:
    T = tokens.shape[1]
    bits = max(1, (T - 1).bit_length())
    keys = mx.sort((ngram_hash(tokens, order) << bits) | mx.arange(T, dtype=mx.uint32), axis=1)
    position, ngram = (keys & (2**bits - 1)).astype(mx.int32), keys >> bits
    before = mx.where(ngram[:, 1:] == ngram[:, :-1], position[:, :-1], -1)
    return mx.put_along_axis(mx.full(tokens.shape, -1, mx.int32), position[:, 1:], before, axis=1)


# ---- logits and loss ------------------------------------------------------------------------------------------------


def softcap(logits: mx.array, cap: float) -> mx.array:
    return cap * mx.tanh(logits.astype(mx.float32) / cap)


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    return mx.fast.cross_entropy(logits.astype(mx.float32), targets)


def softcapped_cross_entropy(logits: mx.array, targets: mx.array, cap: float) -> mx.array:
    return cross_entropy(softcap(logits, cap), targets)


# ---- optimizer: float32 in, float32 out, without gradients ----------------------------------------------------------


def adamw(
    p: mx.array, grad: mx.array, m: mx.array, v: mx.array, *,
    lr: mx.array, beta1: float, beta2: float, eps: float, step: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:  # fmt: skip
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * mx.square(grad)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return p - lr * m_hat / (mx.sqrt(v_hat) + eps), m, v


def nesterov(momentum: mx.array, grad: mx.array, mu: mx.array) -> tuple[mx.array, mx.array]:
    momentum = mu * momentum + (1 - mu) * grad
    return momentum, (1 - mu) * grad + mu * momentum


def cautious_step(p: mx.array, update: mx.array, scale: mx.array, *, lr: mx.array, decay: mx.array) -> mx.array:
    step = update * scale
    return p - lr * (step + decay * p * (step * p >= 0))
