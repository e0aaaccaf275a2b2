"""Every kernel agrees with its definition in plain MLX, in value and in gradient, on the device of this machine.

On the CPU both are float32 and agree to rounding. On CUDA a kernel computes in float32 between bfloat16 arrays, plain
operations round after each step: both are compared with plain float32, and the kernel may not be the worse one.
"""

import mlx.core as mx
import numpy as np
import pytest

from agent.lab import kernels
from agent.lab.kernels import check, fused, plain
from agent.lab.kernels.device import kernel_device
from agent.lab.kernels.windows import cut

DEVICE = kernel_device()
needs_kernels = pytest.mark.skipif(DEVICE is None, reason="no kernels of our own for this device")

DTYPE = DEVICE.DTYPE if DEVICE else mx.float32
TOLERANCE = {mx.float32: 5e-5, mx.bfloat16: 2e-2}[DTYPE]
B, T, C, V = 3, 48, 72, 104


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> mx.array:
    return mx.array(scale * np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32))


def tokens(*shape: int, seed: int = 0) -> mx.array:
    """Draw token ids of which a few are frequent, as in text."""
    drawn = np.random.default_rng(seed).zipf(1.3, shape)
    return mx.array((drawn % V).astype(np.int32))


def as_list(outputs) -> list[mx.array]:
    return [outputs] if isinstance(outputs, mx.array) else list(outputs)


def with_gradients(function, arguments: list[mx.array]) -> list[mx.array]:
    """Return the outputs, and each argument's gradient of their sum weighted by different numbers."""

    def weighed(*arguments):
        outputs = as_list(function(*arguments))
        weights = [normal(*output.shape, seed=7) if output.ndim else 1.0 for output in outputs]
        return sum(mx.sum(output.astype(mx.float32) * w) for output, w in zip(outputs, weights, strict=True)), outputs

    (_, outputs), gradients = mx.value_and_grad(weighed, argnums=list(range(len(arguments))))(*arguments)
    return [*outputs, *as_list(gradients)]


def error(result: mx.array, truth: mx.array) -> float:
    difference = mx.linalg.norm((result - truth).astype(mx.float32).reshape(-1))
    return (difference / mx.maximum(mx.linalg.norm(truth.reshape(-1)), 1e-20)).item()


def assert_agree(kernel, definition, arguments: list[mx.array], kept: int = 0) -> None:
    """Compare a kernel with plain MLX; the last `kept` arguments are weights and stay float32."""
    given = [x.astype(DTYPE) for x in arguments[: len(arguments) - kept]] + arguments[len(arguments) - kept :]
    truth = with_gradients(definition, [x.astype(mx.float32) for x in given])
    rounded = with_gradients(definition, given)
    results = with_gradients(kernel, given)
    assert len(results) == len(truth)
    for result, plainly, true in zip(results, rounded, truth, strict=True):
        assert result.shape == true.shape
        assert result.dtype == plainly.dtype
        assert error(result, true) <= max(TOLERANCE, 1.1 * error(plainly, true))


@pytest.mark.parametrize("name", check.CASES)
def test_every_operation_equals_its_definition(name):
    assert check.worst_error(name, DTYPE) < TOLERANCE


@needs_kernels
@pytest.mark.parametrize("width", [8, 72, 1032])
def test_norms_equal_their_definitions(width):
    x, x0 = normal(B, T, width), normal(B, T, width, seed=1)
    assert_agree(fused.residual_norm, plain.residual_norm, [x])
    assert_agree(fused.mix_norm, plain.mix_norm, [x, x0, mx.array(0.9), mx.array(0.3)], kept=2)


HEADS = [(4, 2, 64), (3, 1, 32), (2, 2, 128)]  # heads of queries, heads of keys, channels of each


def qkv_arguments(heads: int, kv_heads: int, head_dim: int, *, values: bool) -> list[mx.array]:
    columns = (heads + 2 * kv_heads) * head_dim
    if not values:
        return [normal(B, T, columns)]
    return [normal(B, T, columns + kv_heads + -kv_heads % 8), normal(V, kv_heads * head_dim, seed=1)]


@pytest.mark.parametrize("window", [T + 5, 10])
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), HEADS)
def test_queries_keys_and_values_equal_their_definition(heads, kv_heads, head_dim, values, window):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "window": window, "rope_base": 1000.0}

    def flattened(module):
        def pieces(qkv, table=None):
            return [array for piece in module.rotary_qkv(qkv, table, tokens(B, T), **shape) for array in piece]

        return pieces

    arguments = qkv_arguments(heads, kv_heads, head_dim, values=values)
    assert_agree(flattened(fused), flattened(plain), arguments, kept=int(values))


@pytest.mark.parametrize("window", [T, 10])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), HEADS)
def test_attention_equals_its_definition(heads, kv_heads, head_dim, window):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "window": window, "rope_base": 1000.0}

    def attention(module):
        return lambda qkv: module.attend(module.rotary_qkv(qkv, None, tokens(B, T), **shape))

    assert_agree(attention(fused), attention(plain), qkv_arguments(heads, kv_heads, head_dim, values=False))


@needs_kernels
@pytest.mark.parametrize(("softcap", "vocab_size"), [(8.0, V), (15.0, 4096), (40.0, V)])
def test_the_loss_equals_its_definition(softcap, vocab_size):
    targets = tokens(B, T)
    assert_agree(
        lambda logits: fused.softcapped_cross_entropy(logits, targets, softcap),
        lambda logits: plain.softcapped_cross_entropy(logits, targets, softcap),
        [normal(B, T, vocab_size, scale=20.0)],
    )


@needs_kernels
def test_a_number_that_is_none_stays_none():
    broken = normal(2, 16, V)
    broken[1, 3, 5] = mx.nan
    losses = fused.softcapped_cross_entropy(broken.astype(DTYPE), tokens(2, 16), 15.0)
    assert mx.isnan(losses).sum().item() == 1


# Each with something that a kernel would read wrongly, or beyond its end: plain MLX must run, or refuse.
ODD = {
    "ids of 64 bits": lambda m: m.embedding(normal(V, 8), tokens(3, 4).astype(mx.int64), DTYPE),
    "negative ids": lambda m: m.embedding(normal(V, 8), -1 - tokens(3, 4), DTYPE),
    "negative targets": lambda m: m.softcapped_cross_entropy(rows(5, V), tokens(5) - V, 15.0),
    "targets of 64 bits": lambda m: m.softcapped_cross_entropy(rows(5, V), tokens(5).astype(mx.int64), 15.0),
    "a cap beyond float32": lambda m: m.softcapped_cross_entropy(rows(5, V), tokens(5), 60.0),
    "a cap that is learnt": lambda m: m.softcap(rows(5, V), mx.array(15.0)),
    "nothing": lambda m: m.relu_squared(mx.zeros((0, 8), DTYPE)),
    "scales of columns": lambda m: m.cautious_step(*[normal(2, 4, 8)] * 2, mx.abs(normal(2, 1, 8)), **STEP),
    "seven channels": lambda m: m.relu_squared(rows(2, 7)),
}
STEP = {"lr": mx.array(0.1), "decay": mx.array(0.3)}


def rows(*shape: int) -> mx.array:
    return normal(*shape).astype(DTYPE)


@pytest.mark.parametrize("name", ODD)
def test_operands_that_no_kernel_reads_are_computed_all_the_same(name):
    results, truths = as_list(ODD[name](kernels)), as_list(ODD[name](plain))
    for result, truth in zip(results, truths, strict=True):
        assert result.dtype == truth.dtype
        difference = mx.abs(result.astype(mx.float32) - truth.astype(mx.float32))
        assert result.size == 0 or mx.max(difference).item() < (1e-4 if mx.float32 == DTYPE else 0.05)


@pytest.mark.parametrize("window", [2, 7, 16])
def test_a_window_limits_how_far_a_query_reaches(window):
    q, k, v = (normal(1, 2, 32, 8, seed=i).astype(DTYPE) for i in range(3))
    moved = mx.array(v)
    moved[:, :, 5] += 1.0
    before, after = (kernels.attend(cut(q, k, values, window, axis=2)) for values in (v, moved))
    change = mx.max(mx.abs(after - before), axis=(0, 2)).astype(mx.float32)
    reached = np.flatnonzero(np.array(change) > 1e-6) - 5
    assert reached[0] == 0, "a query sees itself"
    assert window // 2 - 1 <= reached[-1] < window, "at least half of its window, and nothing further back"


@pytest.mark.parametrize("length", [32, 33])
def test_a_window_of_the_whole_row_is_exact_causal_attention(length):
    q, k, v = (normal(2, 4, length, 8, seed=i) for i in range(3))
    mask = mx.where(mx.tril(mx.ones((length, length))) > 0, 0.0, -1e9)
    exact = mx.softmax(q @ k.swapaxes(-1, -2) * 8**-0.5 + mask, axis=-1) @ v
    exact = exact.transpose(0, 2, 1, 3).reshape(2, length, -1)
    assert error(plain.attend(cut(q, k, v, length, axis=2)), exact) < 1e-3  # CUDA computes float32 products in TF32


def test_the_check_of_all_operations_fails_where_one_is_off_by_more_than_rounding(monkeypatch, capsys):
    assert check.main() == 0
    monkeypatch.setattr(kernels, "norm", lambda x: 1.1 * plain.norm(x))
    assert check.main() == 1
    assert "wrong on this device" in capsys.readouterr().err
