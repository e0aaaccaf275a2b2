"""Define every operation of this package in plain MLX: used without a kernel, and the reference in kernels' tests.

Letters in the margin: B rows, T positions, N = B · T, C width, H query heads, K key-value heads, D head size,
V vocabulary, F outputs of a matrix.
"""

from functools import partial

import mlx.core as mx

from agent.lab.kernels.windows import Array, Piece, Table, cut

EPS = 1e-6  # added inside every norm


def norm(x: Array) -> Array:
    return mx.fast.rms_norm(x, None, EPS)


def residual_norm(x: Array) -> tuple[Array, Array]:
    return x, norm(x)


def mix_norm(x: Array, x0: Array, keep: Array, again: Array) -> tuple[Array, Array, Array]:  # each (B, T, C)
    x = keep.astype(x.dtype) * x + again.astype(x.dtype) * x0
    return x, norm(x), x0


def gated_add(x: Array, key: Array, value: Array) -> Array:  # each (B, T, C)
    fit = mx.sum(norm(x) * norm(key), axis=-1, keepdims=True) * x.shape[-1] ** -0.5  # (B, T, 1)
    return x + mx.sigmoid(fit) * value


def embedding(table: Array, tokens: Array, dtype: mx.Dtype) -> Array:
    return table[tokens].astype(dtype)  # (B, T, C)


def linear(x: Array, weight: Array) -> Array:
    return x @ weight.astype(x.dtype).T  # (B, T, F)


def linear_add(residual: Array, x: Array, weight: Array) -> Array:
    return residual + linear(x, weight)


def relu_squared(x: Array) -> Array:
    return mx.square(mx.maximum(x, 0))


def rotary_qkv(
    qkv: Array, values: Table, tokens: Array, *, heads: int, kv_heads: int, head_dim: int, window: int, rope_base: float
) -> list[Piece]:
    B, T, _ = qkv.shape
    H, K, D = heads, kv_heads, head_dim
    q, k, v, gates = mx.split(qkv, [H * D, (H + K) * D, (H + 2 * K) * D], axis=-1)
    q, k, v = (z.reshape(B, T, -1, D) for z in (q, k, v))
    if values is not None:
        gate = 2 * mx.sigmoid(gates[..., :K, None])  # (B, T, K, 1)
        v = v + gate * embedding(values, tokens, v.dtype).reshape(v.shape)
    # A rotation keeps lengths, so normalising before it is the same as after, and saves a copy.
    q, k, v = (z.transpose(0, 2, 1, 3) for z in (norm(q), norm(k), v))  # (B, H, T, D)
    turn = partial(mx.fast.rope, dims=D, traditional=False, base=rope_base, scale=1.0, offset=0)
    return cut(turn(q), turn(k), v, window, axis=2)


def attend(pieces: list[Piece]) -> Array:
    outputs = [
        mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal").transpose(0, 2, 1, 3)
        for q, k, v in pieces
    ]
    whole = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)  # (B, T, H, D)
    return whole.reshape(*whole.shape[:2], -1)


def softcap(logits: Array, cap: float) -> Array:
    return cap * mx.tanh(logits.astype(mx.float32) / cap)


def cross_entropy(logits: Array, targets: Array) -> Array:
    return mx.fast.cross_entropy(logits.astype(mx.float32), targets)


def softcapped_cross_entropy(logits: Array, targets: Array, cap: float) -> Array:
    return cross_entropy(softcap(logits, cap), targets)


def adamw(
    p: Array, grad: Array, m: Array, v: Array, *, lr: Array, beta1: float, beta2: float, eps: float, step: Array
) -> tuple[Array, Array, Array]:
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * mx.square(grad)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return p - lr * m_hat / (mx.sqrt(v_hat) + eps), m, v


def nesterov(momentum: Array, grad: Array, mu: Array) -> tuple[Array, Array]:
    momentum = mu * momentum + (1 - mu) * grad
    return momentum, (1 - mu) * grad + mu * momentum


def cautious_step(p: Array, update: Array, scale: Array, *, lr: Array, decay: Array) -> Array:
    step = update * scale
    return p - lr * (step + decay * p * (step * p >= 0))
