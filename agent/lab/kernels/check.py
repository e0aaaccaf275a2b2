"""Compare every operation of this package, as it runs on this machine, with plain MLX in float32.

python -m agent.lab.kernels.check     prints one JSON line: for each operation its largest relative error, and the dtype

Exit code 1 where one is further off than rounding explains.
"""

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agent.lab import hardware

hardware.tune()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

from agent.lab import kernels  # noqa: E402
from agent.lab.kernels import plain  # noqa: E402
from agent.lab.kernels.windows import Array  # noqa: E402

MOST_ERROR = 0.02  # an H200's largest error in bfloat16 is 0.005
B, T, C, V, H, D = 2, 32, 64, 96, 2, 32
SHAPE = {"heads": H, "kv_heads": H, "head_dim": D, "window": T // 2, "rope_base": 1000.0}
ADAM = {"lr": mx.array(0.01), "beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "step": mx.array(2.0)}


def normal(*shape: int, seed: int = 0) -> Array:
    return mx.array(np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32))


def tokens(*shape: int) -> Array:
    """Draw token ids of which a few are frequent, as in text."""
    return mx.array(np.random.default_rng(0).zipf(1.3, shape).astype(np.int64) % V, mx.int32)


def pieces(m: ModuleType, qkv: Array, table: Array) -> list[Array]:
    """Return queries, keys and values of all pieces by heads, in the order in which plain MLX has them."""
    return [array for piece in m.rotary_qkv(qkv, table, tokens(B, T), **SHAPE) for array in piece]


# Each operation with its activations, which have the device's dtype, and its weights, which stay float32.
Operation = Callable[..., Any]
CASES: dict[str, tuple[Operation, list[Array], list[Array]]] = {
    "norm": (lambda m, x: m.norm(x), [normal(B, T, C)], []),
    "residual_norm": (lambda m, x: m.residual_norm(x), [normal(B, T, C)], []),
    "mix_norm": (
        lambda m, *given: m.mix_norm(*given),
        [normal(B, T, C), normal(B, T, C, seed=1)], [mx.array(0.9), mx.array(0.3)],
    ),
    "gated_add": (lambda m, *given: m.gated_add(*given), [normal(B, T, C, seed=seed) for seed in range(3)], []),
    "embedding": (
        lambda m, x, table: x + m.embedding(table, tokens(B, T), x.dtype), [normal(B, T, C)], [normal(V, C)],
    ),
    "linear": (lambda m, x, weight: m.linear(x, weight), [normal(B, T, C)], [normal(V, C)]),
    "linear_add": (
        lambda m, *given: m.linear_add(*given), [normal(B, T, V), normal(B, T, C, seed=1)], [normal(V, C)],
    ),
    "relu_squared": (lambda m, x: m.relu_squared(x), [normal(B, T, C)], []),
    "rotary_qkv": (pieces, [normal(B, T, 3 * H * D + 8)], [normal(V, H * D)]),
    "attend": (
        lambda m, q, k, v: m.attend(kernels.cut(q, k, v, T // 2, axis=2)),
        [normal(B, H, T, D, seed=seed) for seed in range(3)], [],
    ),
    "softcap": (lambda m, logits: m.softcap(logits, 15.0), [normal(B, T, V)], []),
    "cross_entropy": (lambda m, logits: m.cross_entropy(logits, tokens(B, T)), [normal(B, T, V)], []),
    "softcapped_cross_entropy": (
        lambda m, logits: m.softcapped_cross_entropy(logits, tokens(B, T), 15.0), [normal(B, T, V)], [],
    ),
    "adamw": (lambda m, *moments: m.adamw(*moments, mx.square(normal(C, C)), **ADAM), [], [normal(C, C)] * 3),
    "nesterov": (lambda m, p, g: m.nesterov(p, g, mx.array(0.9)), [], [normal(C, C), normal(C, C, seed=1)]),
    "cautious_step": (
        lambda m, p, u: m.cautious_step(p, u, mx.ones((2, C, 1)), lr=mx.array(0.1), decay=mx.array(0.3)),
        [], [normal(2, C, C), normal(2, C, C, seed=1)],
    ),
}  # fmt: skip
WITHOUT_GRADIENT = {"adamw", "nesterov", "cautious_step"}


def dtype_of_device() -> mx.Dtype:
    here = kernels.kernel_device()
    return here.DTYPE if here is not None else hardware.by_device(cpu=mx.float32, metal=mx.bfloat16, cuda=mx.bfloat16)


def results(m: ModuleType, name: str, dtype: mx.Dtype, of_weights: mx.Dtype = mx.float32) -> list[np.ndarray]:
    """Return an operation's outputs, and its gradients where it has some."""
    operation, activations, weights = CASES[name]
    # rounded in either case, so that the inputs are the same
    given = [x.astype(mx.bfloat16).astype(dtype) for x in activations] + [x.astype(of_weights) for x in weights]

    def weighed(*given: Array) -> tuple[Array, list[Array]]:
        found = operation(m, *given)
        outputs = [found] if isinstance(found, Array) else list(found)
        return sum(mx.sum(y.astype(mx.float32) * normal(*y.shape, seed=7)) for y in outputs), outputs

    if name in WITHOUT_GRADIENT:
        found = operation(m, *given)
        return [np.array(y) for y in ([found] if isinstance(found, Array) else found)]
    (_, outputs), gradients = mx.value_and_grad(weighed, argnums=list(range(len(given))))(*given)
    return [np.array(y.astype(mx.float32)) for y in [*outputs, *gradients]]


def worst_error(name: str, dtype: mx.Dtype) -> float:
    """Return the largest relative distance, in the norm of an output or a gradient, from plain MLX in float32.

    The optimizer's operations are float32 themselves, and are compared with float64, which only a CPU has.
    """
    exact = name in WITHOUT_GRADIENT
    with mx.stream(mx.cpu if exact else mx.default_device()):
        truths = results(plain, name, mx.float32, mx.float64 if exact else mx.float32)
    pairs = zip(results(kernels, name, dtype), truths, strict=True)
    return max(float(np.linalg.norm(result - truth) / np.linalg.norm(truth)) for result, truth in pairs)


def main() -> int:
    dtype = dtype_of_device()
    errors = {name: worst_error(name, dtype) for name in CASES}
    print(json.dumps({"dtype": str(dtype), "errors": errors}))
    wrong = [name for name, error in errors.items() if not error < MOST_ERROR]  # a nan is not below it
    if wrong:
        print(f"wrong on this device, above {MOST_ERROR}: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
