"""Implement the operations of plain.py by our kernels, as custom functions with forward and backward pass."""

from functools import cache

import mlx.core as mx

from agent.lab.kernels.device import this_device
from agent.lab.kernels.windows import Array, Arrays, Piece, Table, cut, spans

# ---- the stream -----------------------------------------------------------------------------------------------------


def rows_of(x: Array) -> dict[str, int]:
    return {"rows": x.size // x.shape[-1], "C": x.shape[-1]}


@mx.custom_function
def residual_norm(x: Array) -> tuple[Array, Array]:
    sizes = rows_of(x)
    (normed,) = this_device().launch("norm_forward", [x], [x.shape], sizes, sizes["rows"])
    return x, normed


@residual_norm.vjp
def _(x: Array, gradients: Arrays, _: Arrays) -> Array:
    direct, of_norm = gradients
    sizes = rows_of(x)
    return this_device().launch("norm_backward", [x, of_norm, direct], [x.shape], sizes, sizes["rows"])[0]


def mix_norm(x: Array, x0: Array, keep: Array, again: Array) -> tuple[Array, Array, Array]:
    return mix_by_shares(x, x0, mx.stack([keep, again]).astype(mx.float32))


@mx.custom_function
def mix_by_shares(x: Array, x0: Array, shares: Array) -> tuple[Array, Array, Array]:
    sizes = rows_of(x)
    y, normed = this_device().launch("mix_norm_forward", [x, x0, shares], [x.shape] * 2, sizes, sizes["rows"])
    return y, normed, x0


@mix_by_shares.vjp
def _(primals: Arrays, gradients: Arrays, _: Arrays) -> tuple[Array, Array, Array]:
    x, x0, shares = primals
    dy, of_norm, direct = gradients
    sizes = rows_of(x)
    dx, dx0, sums = this_device().launch(
        "mix_norm_backward",
        [x, x0, shares, dy, of_norm, direct],
        [x.shape, x.shape, (this_device().partial_sums(sizes["rows"]), 2)],
        sizes,
        sizes["rows"],
        [x.dtype, x.dtype, mx.float32],
    )
    return dx, dx0, sums.sum(0)


@mx.custom_function
def gated_add(x: Array, key: Array, value: Array) -> Array:
    sizes = rows_of(x)
    return this_device().launch("gated_add_forward", [x, key, value], [x.shape], sizes, sizes["rows"])[0]


@gated_add.vjp
def _(primals: Arrays, gradient: Array, _: Array) -> tuple[Array, Array, Array]:
    sizes, shapes = rows_of(gradient), [gradient.shape] * 3
    dx, dkey, dvalue = this_device().launch("gated_add_backward", [*primals, gradient], shapes, sizes, sizes["rows"])
    return dx, dkey, dvalue


def embedding(table: Array, tokens: Array, dtype: mx.Dtype) -> Array:
    V, C = table.shape
    ids = as_ids(tokens, V)

    @mx.custom_function
    def look_up(table: Array) -> Array:
        sizes, shape = {"C": C, "rows": ids.size}, (*tokens.shape, C)
        return this_device().launch("embedding_forward", [table, ids], [shape], sizes, ids.size, [dtype])[0]

    @look_up.vjp
    def _(table: Array, gradient: Array, _: Array) -> Array:
        return this_device().embedding_gradient(flat(gradient), ids, V)

    return look_up(table)


def as_ids(tokens: Array, vocab_size: int) -> Array:
    """Return ids (N,) int32 within the vocabulary, since a kernel does not check bounds; -1 is the last, as in MLX."""
    return mx.remainder(tokens.astype(mx.int32), vocab_size).reshape(-1)


# ---- matrix products, with gradients as plain two-dimensional ones --------------------------------------------------


def linear(x: Array, weight: Array) -> Array:
    return product(x, weight.astype(x.dtype))


@mx.custom_function
def product(x: Array, weight: Array) -> Array:
    return x @ weight.T


@product.vjp
def _(primals: Arrays, gradient: Array, _: Array) -> tuple[Array, Array]:
    x, weight = primals
    return gradient @ weight, flat(gradient).T @ flat(x)


def linear_add(residual: Array, x: Array, weight: Array) -> Array:
    return product_add(residual, x, weight.astype(x.dtype))


@mx.custom_function
def product_add(residual: Array, x: Array, weight: Array) -> Array:
    return mx.addmm(residual, x, weight.T)


@product_add.vjp
def _(primals: Arrays, gradient: Array, _: Array) -> tuple[Array, Array, Array]:
    _, x, weight = primals
    return gradient, gradient @ weight, flat(gradient).T @ flat(x)


def flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


# ---- inside a block -------------------------------------------------------------------------------------------------


@mx.custom_function
def relu_squared(x: Array) -> Array:
    return this_device().launch("relu_squared_forward", [x], [x.shape], {"vectors": x.size // 8}, x.size)[0]


@relu_squared.vjp
def _(x: Array, gradient: Array, y: Array) -> Array:
    # computed from y = x², so that x need not be kept
    return this_device().launch("relu_squared_backward", [y, gradient], [x.shape], {"vectors": x.size // 8}, x.size)[0]


@cache
def rotations(T: int, D: int, base: float) -> tuple[Array, Array]:
    """Return cosine and sine of position × base^(-2i / D), each (T, D/2); computed once, as they never change."""
    frequencies = base ** (-mx.arange(D // 2) / (D // 2))
    angles = mx.arange(T)[:, None] * frequencies
    tables = mx.cos(angles), mx.sin(angles)
    mx.eval(tables)
    return tables


def rotary_qkv(
    qkv: Array, values: Table, tokens: Array, *, heads: int, kv_heads: int, head_dim: int, window: int, rope_base: float
) -> list[Piece]:
    B, T, columns = qkv.shape
    H, K, D = heads, kv_heads, head_dim
    N, device, blocks = B * T, this_device(), spans(T, window)
    sizes = {"tokens": N, "T": T, "H": H, "K": K, "D": D, "COLUMNS": columns, "VALUES": int(values is not None)}
    cos_sin, ids = rotations(T, D, rope_base), as_ids(tokens, 1 if values is None else values.shape[0])

    @mx.custom_function
    def split(qkv: Array, table: Array) -> tuple[Array, ...]:
        shapes = [device.head_shape(B, T, heads, D) for heads in (H, K, K)]
        q, k, v = device.launch("rotary_qkv_forward", [qkv, *cos_sin, table, ids], shapes, sizes, N)
        pieces = cut(q, k, v, window, axis=device.POSITION_AXIS)
        return tuple(array for part in zip(*pieces, strict=True) for array in part)  # all q, all k, all v

    @split.vjp
    def _(primals: Arrays, gradients: Arrays, _: Arrays) -> tuple[Array, Array]:
        qkv, table = primals
        dqkv, of_rows = device.launch(
            "rotary_qkv_backward",
            [qkv, *cos_sin, table, ids, *gradients],
            [qkv.shape, (N, K * D) if values is not None else (1, D)],
            sizes | {"WINDOW": window},
            N,
            blocks=blocks,
        )
        if values is None:
            return dqkv, mx.zeros_like(table)
        return dqkv, device.embedding_gradient(of_rows, ids, table.shape[0])

    arrays = [device.by_head(array) for array in split(qkv, mx.zeros((1, D)) if values is None else values)]
    n = len(blocks)
    return [Piece(*arrays[i::n]) for i in range(n)]


def attend(pieces: list[Piece]) -> Array:
    return this_device().attend(pieces)


# ---- logits and loss ------------------------------------------------------------------------------------------------


def softcap(logits: Array, cap: float) -> Array:
    device, sizes, limit = this_device(), {"vectors": logits.size // 8}, mx.array([cap])

    @mx.custom_function
    def capped(logits: Array) -> Array:
        return device.launch("softcap_forward", [logits, limit], [logits.shape], sizes, logits.size, [mx.float32])[0]

    @capped.vjp
    def _(logits: Array, gradient: Array, y: Array) -> Array:
        return device.launch("softcap_backward", [y, gradient, limit], [logits.shape], sizes, logits.size)[0]

    return capped(logits)


def cross_entropy(logits: Array, targets: Array) -> Array:
    return this_device().cross_entropy(logits, targets)


def softcapped_cross_entropy(logits: Array, targets: Array, cap: float) -> Array:
    device, sizes = this_device(), {"rows": targets.size, "V": logits.shape[-1]}
    ids, limit = as_ids(targets, logits.shape[-1]), mx.array([cap])

    @mx.custom_function
    def losses(logits: Array) -> tuple[Array, Array]:  # (N,), and the logsumexp of each row
        inputs, dtypes = [logits, ids, limit], [mx.float32] * 2
        loss, lse = device.launch("cross_entropy_forward", inputs, [ids.shape] * 2, sizes, ids.size, dtypes)
        return loss, lse

    @losses.vjp
    def _(logits: Array, gradients: Arrays, outputs: Arrays) -> Array:
        inputs = [logits, ids, limit, outputs[1], gradients[0]]
        return device.launch("cross_entropy_backward", inputs, [logits.shape], sizes, ids.size)[0]

    return losses(logits)[0].reshape(targets.shape)


# ---- optimizer ------------------------------------------------------------------------------------------------------


def adamw(
    p: Array, grad: Array, m: Array, v: Array, *, lr: Array, beta1: float, beta2: float, eps: float, step: Array
) -> tuple[Array, Array, Array]:
    now = mx.stack([lr, mx.array(beta1), mx.array(beta2), 1 - beta1**step, 1 - beta2**step, mx.array(eps)])
    p, m, v = by_element("adamw", [p, grad, m, v, now], outputs=3)
    return p, m, v


def nesterov(momentum: Array, grad: Array, mu: Array) -> tuple[Array, Array]:
    momentum, update = by_element("nesterov", [momentum, grad, mu], outputs=2)
    return momentum, update


def cautious_step(p: Array, update: Array, scale: Array, *, lr: Array, decay: Array) -> Array:
    rows, columns = p.shape[-2:]
    sizes = {"BY_ROW": int(scale.shape[-2:] == (rows, 1)), "COLUMNS": columns, "matrix_rows": rows}
    return by_element("cautious_step", [p, update, scale, mx.stack([lr, decay])], outputs=1, sizes=sizes)[0]


def by_element(kernel: str, inputs: Arrays, *, outputs: int, sizes: dict[str, int] | None = None) -> list[Array]:
    """Run a kernel on float32 arrays element by element; the outputs have the shape of the first input."""
    shape, size = inputs[0].shape, inputs[0].size
    sizes = {**(sizes or {}), "vectors": size // 8}
    return this_device().launch(kernel, inputs, [shape] * outputs, sizes, size, [mx.float32] * outputs)
