"""Every kernel against its definition in plain MLX, in value and in gradient, on whatever device this is.

On the CPU both are float32 and agree to rounding. On CUDA a kernel computes in float32 between bfloat16 arrays, plain
operations round after each step: both are compared with plain float32, and the kernel may not be the worse one.
"""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.optimizers
import numpy as np
import pytest

import kernels
from kernels import fused, plain
from kernels.cache import kept
from kernels.device import kernel_device
from kernels.windows import cut, spans

DEVICE = kernel_device()
pytestmark = pytest.mark.skipif(DEVICE is None, reason="no kernels of our own for this device")

DTYPE = DEVICE.DTYPE if DEVICE else mx.float32
TOLERANCE = {mx.float32: 5e-5, mx.bfloat16: 2e-2}[DTYPE]
B, T, C, V = 3, 48, 72, 104


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> mx.array:
    return mx.array(scale * np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32))


def tokens(*shape: int, seed: int = 0) -> mx.array:
    """Most of them the same few, as in text."""
    drawn = np.random.default_rng(seed).zipf(1.3, shape)
    return mx.array((drawn % V).astype(np.int32))


def as_list(outputs) -> list[mx.array]:
    return [outputs] if isinstance(outputs, mx.array) else list(outputs)


def with_gradients(function, arguments: list[mx.array]) -> list[mx.array]:
    """The outputs and, for every argument, the gradient of a sum of them in which no two elements weigh the same."""

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
    """`kept` arguments at the end are weights and stay float32."""
    given = [x.astype(DTYPE) for x in arguments[: len(arguments) - kept]] + arguments[len(arguments) - kept :]
    truth = with_gradients(definition, [x.astype(mx.float32) for x in given])
    rounded = with_gradients(definition, given)
    results = with_gradients(kernel, given)
    assert len(results) == len(truth)
    for result, plainly, true in zip(results, rounded, truth, strict=True):
        assert result.shape == true.shape
        assert result.dtype == plainly.dtype
        assert error(result, true) <= max(TOLERANCE, 1.1 * error(plainly, true))


@pytest.mark.parametrize("width", [8, 72, 256, 384, 1032])
def test_norms_equal_their_definitions(width):
    x, x0 = normal(B, T, width), normal(B, T, width, seed=1)
    assert_agree(fused.residual_norm, plain.residual_norm, [x])
    assert_agree(fused.mix_norm, plain.mix_norm, [x, x0, mx.array(0.9), mx.array(0.3)], kept=2)


def test_the_activation_equals_its_definition():
    assert_agree(fused.relu_squared, plain.relu_squared, [normal(B, T, C)])


def test_matrix_products_equal_their_definitions():
    x, residual, weight = normal(B, T, C), normal(B, T, 40, seed=1), normal(40, C, seed=2)
    assert_agree(fused.linear, plain.linear, [x, weight], kept=1)
    assert_agree(fused.linear_add, plain.linear_add, [residual, x, weight], kept=1)


@pytest.mark.parametrize("width", [8, C, 520])
def test_an_embedding_equals_its_definition(width):
    ids = tokens(B, T)
    assert_agree(
        lambda table: fused.embedding(table, ids, DTYPE),
        lambda table: plain.embedding(table, ids, DTYPE),
        [normal(V, width)],
        kept=1,
    )


HEADS = [(4, 4, 32), (4, 2, 64), (3, 1, 32), (2, 2, 128)]  # of queries, of keys, channels of each


def qkv_arguments(heads: int, kv_heads: int, head_dim: int, *, values: bool) -> list[mx.array]:
    columns = (heads + 2 * kv_heads) * head_dim
    if not values:
        return [normal(B, T, columns)]
    return [normal(B, T, columns + kv_heads + -kv_heads % 8), normal(V, kv_heads * head_dim, seed=1)]


@pytest.mark.parametrize("window", [T, T + 5, T // 2, 10])
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


@pytest.mark.parametrize("window", [T, T // 2, 10])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), HEADS)
def test_attention_equals_its_definition(heads, kv_heads, head_dim, window):
    shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "window": window, "rope_base": 1000.0}

    def attention(module):
        return lambda qkv: module.attend(module.rotary_qkv(qkv, None, tokens(B, T), **shape))

    assert_agree(attention(fused), attention(plain), qkv_arguments(heads, kv_heads, head_dim, values=False))


@pytest.mark.parametrize("softcap", [8.0, 15.0, 40.0])
@pytest.mark.parametrize("vocab_size", [V, 4096])
def test_the_loss_equals_its_definition(softcap, vocab_size):
    targets = tokens(B, T)
    assert_agree(
        lambda logits: fused.softcapped_cross_entropy(logits, targets, softcap),
        lambda logits: plain.softcapped_cross_entropy(logits, targets, softcap),
        [normal(B, T, vocab_size, scale=20.0)],
    )


def test_the_softcap_equals_its_definition():
    assert_agree(lambda x: fused.softcap(x, 15.0), lambda x: plain.softcap(x, 15.0), [normal(B, T, V, scale=20.0)])


def test_the_loss_of_any_logits_equals_its_definition():
    logits, targets = normal(B, T, V, scale=200.0), tokens(B, T)
    assert error(kernels.cross_entropy(logits, targets), plain.cross_entropy(logits, targets)) < 1e-5


def test_the_optimizers_steps_equal_their_definitions():
    p, grad, m, v = normal(4, 24, 40), normal(4, 24, 40, seed=1), normal(4, 24, 40, seed=2), normal(4, 24, 40, seed=3)
    now = {"lr": mx.array(0.01), "beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "step": mx.array(3.0)}
    share, sizes = mx.array(0.9), {"lr": mx.array(0.1), "decay": mx.array(0.3)}
    for name, results, truths in [
        ("adamw", fused.adamw(p, grad, m, v * v, **now), plain.adamw(p, grad, m, v * v, **now)),
        ("nesterov", fused.nesterov(m, grad, share), plain.nesterov(m, grad, share)),
        *(
            (str(scale), fused.cautious_step(p, grad, scale, **sizes), plain.cautious_step(p, grad, scale, **sizes))
            for scale in (mx.abs(normal(4, 24, 1)), mx.abs(normal(4, 1, 40)))
        ),
    ]:
        for result, truth in zip(as_list(results), as_list(truths), strict=True):
            assert error(result, truth) < 1e-5, name


def test_a_number_that_is_none_stays_none():
    broken = normal(2, 16, V)
    broken[1, 3, 5] = mx.nan
    broken = broken.astype(DTYPE)
    losses = fused.softcapped_cross_entropy(broken, tokens(2, 16), 15.0)
    assert mx.isnan(losses).sum().item() == 1
    for operation in (fused.relu_squared, lambda x: fused.residual_norm(x)[1]):
        assert mx.isnan(operation(broken)[1, 3, 5]).item()


def test_what_no_kernel_fits_runs_as_plain_mlx():
    odd = normal(2, 3, 7)
    np.testing.assert_allclose(kernels.relu_squared(odd), plain.relu_squared(odd), atol=1e-6)
    other = normal(2, 3, 8).astype(mx.float16)
    assert kernels.relu_squared(other).dtype == mx.float16
    half = normal(2, 3, 8)
    assert kernels.implementation(half.astype(DTYPE)) is fused
    assert kernels.implementation(half.astype(mx.float16)) is plain


@pytest.mark.parametrize("length", [1, 2, 5, 32, 33])
@pytest.mark.parametrize("window", [1, 2, 7, 16, 100])
def test_every_query_sees_itself_and_its_window_and_nothing_else(length, window):
    blocks = spans(length, window)
    assert [position for span in blocks for position in range(span.start, span.stop)] == list(range(length))
    for start, stop, first in blocks:
        for query in range(start, stop):
            reach = query - first + 1  # of the keys first … query
            assert reach <= window
            assert reach >= min(query + 1, window // 2)
        if window >= length:
            assert first == 0


@pytest.mark.parametrize("window", [2, 7, 8, 16])
def test_a_window_limits_how_far_a_query_reaches(window):
    q, k, v = (normal(1, 2, 32, 8, seed=i).astype(DTYPE) for i in range(3))
    before = kernels.attend(cut(q, k, v, window, axis=2))
    for position in (0, 5, 13):
        moved = mx.array(v)
        moved[:, :, position] += 1.0
        delta = mx.max(mx.abs(kernels.attend(cut(q, k, moved, window, axis=2)) - before), axis=(0, 2))
        reached = np.flatnonzero(np.array(delta.astype(mx.float32)) > 1e-6) - position
        assert reached[0] == 0, "a query sees itself"
        assert reached[-1] < window, "and nothing further back than its window"
        assert reached[-1] >= min(window // 2, 31 - position) - 1, "but at least half of it"


@pytest.mark.parametrize("length", [32, 33])
def test_a_window_of_the_whole_row_is_exact_causal_attention(length):
    q, k, v = (normal(2, 4, length, 8, seed=i) for i in range(3))
    mask = mx.where(mx.tril(mx.ones((length, length))) > 0, 0.0, -1e9)
    exact = mx.softmax(q @ k.swapaxes(-1, -2) * 8**-0.5 + mask, axis=-1) @ v
    exact = exact.transpose(0, 2, 1, 3).reshape(2, length, -1)
    assert error(plain.attend(cut(q, k, v, length, axis=2)), exact) < 1e-3  # on CUDA, float32 products are TF32


def test_adamw_follows_the_one_in_mlx():
    ours = theirs = normal(5, 8)
    m = v = mx.zeros((5, 8))
    reference = mlx.optimizers.AdamW(
        learning_rate=0.01, betas=[0.8, 0.95], eps=1e-10, weight_decay=0.0, bias_correction=True
    )
    for step in range(20):
        grad = normal(5, 8, seed=step)
        now = {"lr": mx.array(0.01), "beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "step": mx.array(step + 1.0)}
        ours, m, v = kernels.adamw(ours, grad, m, v, **now)
        theirs = reference.apply_gradients({"p": grad}, {"p": theirs})["p"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def files_of(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (cache / "kernels").iterdir()}


def test_kernels_are_compiled_in_the_first_step_and_never_again(tiny_data, tmp_path):
    script = Path(kernels.__file__).parents[1] / "train_mlx.py"
    environment = {**os.environ, "NIGHTSHIFT_DATA": str(tiny_data), "NIGHTSHIFT_CACHE": str(tmp_path)}
    after = []
    for steps in ("1", "6"):
        command = [sys.executable, script, "--max-steps", steps, "--no-eval"]
        subprocess.run(command, env=environment, capture_output=True, check=True)
        after.append(files_of(tmp_path))
    assert after[0]
    assert after[0] == after[1]


def test_machine_code_that_was_damaged_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path))
    path = kept("test", "recipe", lambda: b"machine code")
    assert kept("test", "recipe", lambda: b"never made") == path
    path.write_bytes(b"machine")
    again = kept("test", "recipe", lambda: b"machine code")
    assert again.read_bytes() == b"machine code"


def test_without_a_folder_to_keep_it_in_machine_code_is_made_for_this_process(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "file"))
    assert kept("test", "recipe", lambda: b"machine code").read_bytes() == b"machine code"


@pytest.mark.skipif(mx.float32 != DTYPE, reason="the CPU's kernels need a compiler")
@pytest.mark.parametrize("compiler", ["/bin/false", "/nowhere/cc"])
def test_without_a_compiler_that_works_plain_mlx_trains(tmp_path, compiler):
    script = "import hardware; hardware.tune(); from kernels.device import kernel_device; print(kernel_device())"
    root = Path(kernels.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "NIGHTSHIFT_CACHE": str(tmp_path), "CC": compiler}
    if compiler == "/nowhere/cc":
        environment["PATH"] = str(tmp_path)
    process = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert process.stdout.strip() == "None", process.stderr
    assert "training goes on with plain MLX" in process.stderr


def test_the_environment_can_leave_every_kernel_aside():
    script = "import hardware; hardware.tune(); from kernels.device import kernel_device; print(kernel_device())"
    root = Path(kernels.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"NIGHTSHIFT_KERNELS": "plain"},
        capture_output=True,
        text=True,
    )
    assert process.stdout.strip() == "None", process.stderr
