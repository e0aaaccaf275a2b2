"""Run what a Mac runs, on the device of this machine, and print as JSON how far it is from float32.

    NIGHTSHIFT_PRESET=metal python tests/metal_branch.py

Every public operation of kernels/ takes the branch of a Mac: plain MLX between bfloat16 arrays. The script's own step
trains a small model with the dials of the Metal preset, once in their dtype and once in float32.
"""

import inspect
import json
import sys
from collections.abc import Callable
from itertools import repeat

import hardware

hardware.tune()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

import kernels  # noqa: E402
import train_mlx  # noqa: E402

B, T, C, V, H, D = 2, 32, 64, 96, 2, 32
STEPS = 6
ROWS = train_mlx.BATCH_ROWS
SHAPE = {"heads": H, "kv_heads": H, "head_dim": D, "window": T // 2, "rope_base": 1000.0}
ADAM = {"lr": mx.array(0.01), "beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "step": mx.array(2.0)}


def normal(*shape: int, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32))


def tokens(*shape: int) -> mx.array:
    return mx.array(np.random.default_rng(0).zipf(1.3, shape).astype(np.int64) % V, mx.int32)


def pieces(qkv: mx.array, table: mx.array) -> list[kernels.Piece]:
    return kernels.rotary_qkv(qkv, table, tokens(B, T), **SHAPE)


# Each operation with its activations, which have the preset's dtype, and its weights, which stay float32.
CASES: dict[str, tuple[Callable, list[mx.array], list[mx.array]]] = {
    "norm": (kernels.norm, [normal(B, T, C)], []),
    "residual_norm": (kernels.residual_norm, [normal(B, T, C)], []),
    "mix_norm": (kernels.mix_norm, [normal(B, T, C), normal(B, T, C, seed=1)], [mx.array(0.9), mx.array(0.3)]),
    "embedding": (
        lambda x, table: x + kernels.embedding(table, tokens(B, T), x.dtype), [normal(B, T, C)], [normal(V, C)],
    ),
    "linear": (kernels.linear, [normal(B, T, C)], [normal(V, C)]),
    "linear_add": (kernels.linear_add, [normal(B, T, V), normal(B, T, C, seed=1)], [normal(V, C)]),
    "relu_squared": (kernels.relu_squared, [normal(B, T, C)], []),
    "rotary_qkv": (
        lambda qkv, table: [array for piece in pieces(qkv, table) for array in piece],
        [normal(B, T, 3 * H * D + 8)], [normal(V, H * D)],
    ),
    "attend": (
        lambda q, k, v: kernels.attend(kernels.cut(q, k, v, T // 2, axis=2)),
        [normal(B, H, T, D, seed=seed) for seed in range(3)], [],
    ),
    "softcap": (lambda logits: kernels.softcap(logits, 15.0), [normal(B, T, V)], []),
    "cross_entropy": (lambda logits: kernels.cross_entropy(logits, tokens(B, T)), [normal(B, T, V)], []),
    "softcapped_cross_entropy": (
        lambda logits: kernels.softcapped_cross_entropy(logits, tokens(B, T), 15.0), [normal(B, T, V)], [],
    ),
    "adamw": (lambda *moments: kernels.adamw(*moments, mx.square(normal(C, C)), **ADAM), [], [normal(C, C)] * 3),
    "nesterov": (lambda m, g: kernels.nesterov(m, g, mx.array(0.9)), [], [normal(C, C), normal(C, C, seed=1)]),
    "cautious_step": (
        lambda p, u: kernels.cautious_step(p, u, mx.ones((2, C, 1)), lr=mx.array(0.1), decay=mx.array(0.3)),
        [], [normal(2, C, C), normal(2, C, C, seed=1)],
    ),
}  # fmt: skip
WITHOUT_GRADIENT = {"adamw", "nesterov", "cautious_step"}
# of whole numbers, or no operation on arrays: the model's step below runs them
OTHERS = {"Piece", "cut", "kernel_device", "last_seen", "ngram_ids"}


def results(name: str, dtype: mx.Dtype, of_weights: mx.Dtype = mx.float32) -> list[mx.array]:
    """Return an operation's outputs, and its gradients where it has some."""
    operation, activations, weights = CASES[name]
    given = [x.astype(mx.bfloat16).astype(dtype) for x in activations] + [x.astype(of_weights) for x in weights]

    def weighed(*given: mx.array) -> tuple[mx.array, list[mx.array]]:
        found = operation(*given)
        outputs = [found] if isinstance(found, mx.array) else list(found)
        return sum(mx.sum(y.astype(mx.float32) * normal(*y.shape, seed=7)) for y in outputs), outputs

    if name in WITHOUT_GRADIENT:
        return list(operation(*given)) if name != "cautious_step" else [operation(*given)]
    (_, outputs), gradients = mx.value_and_grad(weighed, argnums=list(range(len(given))))(*given)
    return [*outputs, *gradients]


def worst_error(name: str) -> float:
    """Return the largest relative distance, in the norm of an output or a gradient, from the same in float32.

    The optimizer's operations are float32 themselves, and are compared with float64, which Metal has not.
    """
    found = [np.array(x.astype(mx.float32)) for x in results(name, train_mlx.DTYPE)]
    exact = name in WITHOUT_GRADIENT
    with mx.stream(mx.cpu if exact else mx.default_device()):
        truths = [np.array(x) for x in results(name, mx.float32, mx.float64 if exact else mx.float32)]
    pairs = zip(found, truths, strict=True)
    return max(float(np.linalg.norm(result - truth) / np.linalg.norm(truth)) for result, truth in pairs)


def losses(dtype: mx.Dtype) -> list[float]:
    """Return the losses of the script's own step, which learns one batch by heart."""
    train_mlx.DTYPE = dtype
    mx.random.seed(0)
    windows = (T // 2, T)
    model = train_mlx.GPT(train_mlx.GPTConfig(V, T, 2, C, H, H, windows, 4, 15.0, 10000.0))
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = train_mlx.MuonAdamW(params, C)
    step, state, found = train_mlx.make_step(model, optimizer), optimizer.init(params), []
    batches = repeat(np.array(tokens(4, T + 1)))
    for number in range(STEPS):
        params, state, loss = step(params, state, batches, train_mlx.schedule(number, number / STEPS))
        found.append(loss.item())
    return found


def model_of(depth: int, width: int, heads: int, seq_len: int, vocab_size: int) -> train_mlx.GPT:
    letters = [train_mlx.WINDOW_PATTERN[i % len(train_mlx.WINDOW_PATTERN)] for i in range(depth - 1)] + ["L"]
    windows = tuple({"S": seq_len // 2, "L": seq_len}[letter] for letter in letters)
    return train_mlx.GPT(train_mlx.GPTConfig(vocab_size, seq_len, depth, width, heads, heads, windows, 4, 15.0, 1e4))


def batches_that_fit(depth: int, limits_gb: list[float]) -> list[tuple[int, int, float] | str]:
    """Return for each limit the rows and micro-steps of a step of the Metal preset, and the gigabytes that it needs."""
    model, found = model_of(depth, 64 * depth, depth, 1024, 8192), []  # its weights are never evaluated
    for limit_gb in limits_gb:
        train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS = ROWS, 1
        try:
            train_mlx.fit_into_memory(model, limit_gb)
        except train_mlx.Refused as error:
            found.append(str(error))
        else:
            needed_gb = sum(train_mlx.gigabytes_of_a_step(model).values())
            found.append((train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS, round(needed_gb, 2)))
    return found


def peak_and_estimate(seq_len: int) -> tuple[float, float]:
    """Return the megabytes that a step fills, most of them attention scores, and those that were estimated."""
    train_mlx.BATCH_ROWS, train_mlx.MICRO_STEPS, train_mlx.COMPILE = 4, 1, False
    model = model_of(2, 32, 2, seq_len, 32)
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = train_mlx.MuonAdamW(params, 32)
    mx.eval(params, state := optimizer.init(params))
    mx.reset_peak_memory()
    mx.eval(train_mlx.make_step(model, optimizer)(params, state, repeat(np.zeros((4, seq_len + 1), np.int32)),
                                                  train_mlx.schedule(0, 0.0)))  # fmt: skip
    return mx.get_peak_memory() / 1e6, 1e3 * sum(train_mlx.gigabytes_of_a_step(model).values())


def outgrown_gb() -> list[float | None]:
    """Return what is said of a peak of 0.4 GB, where little and where enough was estimated."""
    mx.eval(mx.zeros(10**8))
    return [hardware.outgrown_gb(estimated_gb) for estimated_gb in (0.05, 0.2)]


def main() -> int:
    public = {name for name in kernels.__all__ if name not in OTHERS}
    assert public == set(CASES), f"no case for {sorted(public ^ set(CASES))}"
    assert all(inspect.isfunction(getattr(kernels, name)) for name in public)
    preset = {
        "dtype": str(train_mlx.DTYPE), "compile": train_mlx.COMPILE, "batch_rows": train_mlx.BATCH_ROWS,
        "depth": train_mlx.DEPTH, "kernels": kernels.kernel_device() is not None,
    }  # fmt: skip
    errors = {name: worst_error(name) for name in CASES}
    dtype = train_mlx.DTYPE
    here = losses(dtype), losses(mx.float32)
    train_mlx.DTYPE = dtype
    fits = {depth: batches_that_fit(depth, json.loads(sys.argv[1])) for depth in (6, 12)} if sys.argv[1:] else {}
    told = {
        "preset": preset, "errors": errors, "losses": here[0], "losses_float32": here[1], "fits": fits,
        "peak_mb": peak_and_estimate(512), "outgrown_gb": outgrown_gb(),
    }  # fmt: skip
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
