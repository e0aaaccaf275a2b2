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


def main() -> int:
    public = {name for name in kernels.__all__ if name not in OTHERS}
    assert public == set(CASES), f"no case for {sorted(public ^ set(CASES))}"
    assert all(inspect.isfunction(getattr(kernels, name)) for name in public)
    preset = {
        "dtype": str(train_mlx.DTYPE), "compile": train_mlx.COMPILE, "batch_rows": train_mlx.BATCH_ROWS,
        "depth": train_mlx.DEPTH, "kernels": kernels.kernel_device() is not None,
    }  # fmt: skip
    errors = {name: worst_error(name) for name in CASES}
    here = losses(train_mlx.DTYPE), losses(mx.float32)
    print(json.dumps({"preset": preset, "errors": errors, "losses": here[0], "losses_float32": here[1]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
