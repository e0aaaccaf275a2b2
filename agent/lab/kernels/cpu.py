"""Run the Linux CPU's kernels (cpu.c), compiled on first use by the machine's C compiler, on MLX's memory.

MLX cannot call CPU kernels of ours in its graph, so each launch first evaluates its inputs. Inside mx.compile arrays
have no values yet, so the plain definitions run.
"""

import ctypes
import itertools
import math
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np

from agent.lab import hardware
from agent.lab.kernels.cache import kept
from agent.lab.kernels.windows import Array, Arrays, Dtypes, Piece, Shapes, Sizes, Spans

DTYPE = mx.float32
WITHOUT = frozenset({"gated_add"})  # train_mlx.py looks n-grams up on NVIDIA GPUs only
POSITION_AXIS = 2  # queries, keys and values are (B, H, T, D): a head is one matrix for BLAS
SOURCE = Path(__file__).with_name("cpu.c")
# The parts of -ffast-math that preserve NaN: a loss that is NaN must stay NaN.
FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
)

COMPILE_TIMEOUT_S = 30.0  # s; compiling takes one or two


def available() -> str | None:
    try:
        library()
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {error.returncode}"]
        return f"{SOURCE.name} does not compile with {error.cmd[0]} ({words[-1]})"
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        return f"{SOURCE.name} cannot be compiled and loaded ({error})"
    return None


def can_run(*arrays: Array) -> bool:
    try:
        mx.eval(arrays)
    except ValueError:  # inside mx.compile or mx.vmap
        return False
    return True


@cache
def library() -> ctypes.CDLL:
    recipe = (SOURCE.read_bytes(), FLAGS, processor())
    path = kept("cpu", recipe, compile_source)
    try:
        return load(path)
    except (OSError, AttributeError):  # a broken compiler had made the file: compile it again with today's
        path.unlink()
        return load(kept("cpu", recipe, compile_source))


def load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    _ = loaded.norm_forward
    return loaded


def compile_source() -> bytes:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("neither cc, gcc nor clang is on PATH")
    with tempfile.TemporaryDirectory() as aside:
        binary = Path(aside) / "kernels.so"
        command: list[str | Path] = [compiler, *FLAGS, "-o", binary, SOURCE, "-lm"]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMPILE_TIMEOUT_S)
        return binary.read_bytes()


def processor() -> str:
    """Describe what -march=native depends on, since different machines may share a cache folder."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), platform.machine())


@cache
def cores() -> int:
    return hardware.usable_cores()


@cache
def workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, cores() - 1), thread_name_prefix="kernels")


def launch(
    kernel: str, inputs: Arrays, shapes: Shapes, sizes: Sizes, work: int, dtypes: Dtypes = (), blocks: Spans = ()
) -> list[Array]:
    """Run a kernel in one thread for each core, each with its part of the work.

    This thread also does the parts of those that have not begun when it is ready: other programs may have their cores.
    """
    arrays = [mx.contiguous(array) for array in inputs]
    outputs = [mx.empty(shape, dtype) for shape, dtype in zip(shapes, dtypes or [DTYPE] * len(shapes), strict=True)]
    mx.eval(arrays, outputs)
    pointers = (ctypes.c_void_p * (len(arrays) + len(outputs)))(*map(address, (*arrays, *outputs)))
    integers = [*sizes.values()]
    if blocks:
        integers += [len(blocks), *(at for field in zip(*blocks, strict=True) for at in field)]
    numbers = (ctypes.c_int64 * len(integers))(*integers)
    function = getattr(library(), kernel)

    def run(begin: int, end: int) -> None:
        function(pointers, numbers, ctypes.c_int64(begin), ctypes.c_int64(end))  # releases Python's lock

    bounds = [work * i // cores() for i in range(cores() + 1)]
    mine, *others = itertools.pairwise(bounds)
    running = [(part, workers().submit(run, *part)) for part in others]
    run(*mine)
    for part, future in running:
        if future.cancel():
            run(*part)
        else:
            future.result()
    return outputs


def address(array: Array) -> int:
    return np.array(array, copy=False).ctypes.data


def head_shape(B: int, T: int, heads: int, D: int) -> tuple[int, ...]:
    return B, heads, T, D


def by_head(array: Array) -> Array:
    return array


def partial_sums(rows: int) -> int:
    return rows  # one a row


def embedding_gradient(rows: Array, ids: Array, vocab_size: int) -> Array:
    N, C = rows.shape
    return launch("embedding_backward", [rows, ids], [(vocab_size, C)], {"C": C, "rows": N, "V": vocab_size}, C)[0]


def cross_entropy(logits: Array, targets: Array) -> Array:
    V = logits.shape[-1]
    ids = mx.remainder(targets.astype(mx.int32), V)

    @mx.custom_function
    def losses(logits: Array) -> Array:
        return launch("plain_cross_entropy", [logits, ids], [ids.shape], {"rows": ids.size, "V": V}, ids.size)[0]

    @losses.vjp
    def _(logits: Array, gradient: Array, _: Array) -> Array:
        return (mx.softmax(logits, axis=-1) - (mx.arange(V) == ids[..., None])) * gradient[..., None]

    return losses(logits)


def attend(pieces: list[Piece]) -> Array:
    """Compute attention: scores and sums by BLAS, softmax by our kernel; keep probabilities for the backward pass."""
    outputs = [attend_piece(*piece)[0] for piece in pieces]
    whole = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2)  # (B, H, T, D)
    B, _, T, _ = whole.shape
    return whole.transpose(0, 2, 1, 3).reshape(B, T, -1)


@mx.custom_function
def attend_piece(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    B, H, t, D = q.shape
    K = k.shape[1]
    scores = q.reshape(B, K, H // K, t, D) @ k[:, :, None].swapaxes(-1, -2)  # (B, K, H/K, t, s)
    inputs = [scores, mx.array([D**-0.5])]
    (p,) = launch("causal_softmax_forward", inputs, [scores.shape], softmax_sizes(scores), math.prod(scores.shape[:-1]))
    return (p @ v[:, :, None]).reshape(q.shape), p


@attend_piece.vjp
def _(primals: Arrays, gradients: Arrays, outputs: Arrays) -> tuple[Array, Array, Array]:
    q, k, v = primals
    p, D = outputs[1], q.shape[-1]
    dy = gradients[0].reshape(*p.shape[:-1], D)  # (B, K, H/K, t, D)
    dp = dy @ v[:, :, None].swapaxes(-1, -2)
    inputs = [p, dp, mx.array([D**-0.5])]
    (ds,) = launch("causal_softmax_backward", inputs, [p.shape], softmax_sizes(p), math.prod(p.shape[:-1]))
    dq = (ds @ k[:, :, None]).reshape(q.shape)
    dk = (ds.swapaxes(-1, -2) @ q.reshape(dy.shape)).sum(2)  # sum over the query heads that share a key
    dv = (p.swapaxes(-1, -2) @ dy).sum(2)
    return dq, dk, dv


def softmax_sizes(scores: Array) -> dict[str, int]:
    t, s = scores.shape[-2:]
    return {"rows": scores.size // s, "t": t, "s": s}
