"""Run NVIDIA's kernels (cuda.cu), compiled by NVRTC on first use for each set of sizes, and cached.

`mx.fast.cuda_kernel` would compile again in every process, with MLX's headers, which takes half a minute in all; this
takes two seconds once.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import mlx.core as mx

from agent.lab import hardware
from agent.lab.kernels import plain
from agent.lab.kernels.cache import kept
from agent.lab.kernels.windows import Array, Arrays, Dtypes, Shapes, Sizes, Span, Spans

DTYPE = mx.bfloat16
WITHOUT = frozenset({"attend", "cross_entropy"})  # MLX has kernels of its own for these
POSITION_AXIS = 1  # queries, keys and values are (B, T, H, D), as the projection leaves them
SOURCE = Path(__file__).with_name("cuda.cu")
RUN = 16  # neighbours that one warp adds up in the embedding's gradient
THREADS = 256  # threads of a block

attend, cross_entropy = plain.attend, plain.cross_entropy


def threads(kernel: str, sizes: Sizes) -> int:
    """Return how many threads a kernel needs."""
    match kernel:
        case "norm_forward" | "norm_backward" | "mix_norm_forward" | "mix_norm_backward" | "embedding_forward":
            return 32 * sizes["rows"]
        case "gated_add_forward" | "gated_add_backward":
            return 32 * sizes["rows"]
        case "rotary_qkv_forward" | "rotary_qkv_backward":
            return sizes["tokens"] * (sizes["H"] + 2 * sizes["K"]) * sizes["D"] // 16
        case "embedding_backward":
            return 32 * -(-sizes["rows"] // RUN)
        case "cross_entropy_forward" | "cross_entropy_backward":
            return THREADS * sizes["rows"]
        case _:
            return sizes["vectors"]


def available() -> str | None:
    try:
        compiled("norm_forward", (256,), ())
    except OSError as error:
        return f"NVRTC, NVIDIA's compiler library, cannot be loaded ({error})"
    except RuntimeError as error:  # the GPU may be older than bfloat16
        return f"{SOURCE.name} cannot be used ({str(error).strip().splitlines()[-1]})"
    return None


def can_run(*arrays: Array) -> bool:
    return True  # kernels are nodes of the graph, which runs later


def launch(
    kernel: str, inputs: Arrays, shapes: Shapes, sizes: Sizes, work: int, dtypes: Dtypes = (), blocks: Spans = ()
) -> list[Array]:
    """Add a kernel to MLX's graph; `sizes` determine its work."""
    constants = tuple(value for name, value in sizes.items() if name.isupper())
    name, binary = compiled(kernel, constants, tuple(blocks))
    return mx.fast.precompiled_cuda_kernel(
        name=name,
        compiled_source=binary,
        inputs=list(inputs),
        output_shapes=[tuple(shape) for shape in shapes],
        output_dtypes=list(dtypes or [DTYPE] * len(shapes)),
        scalars=[value for name, value in sizes.items() if name.islower()],
        grid=(threads(kernel, sizes), 1, 1),
        threadgroup=(THREADS, 1, 1),
        init_value=0.0 if kernel == "embedding_backward" else None,  # embedding_backward adds to its output
        ensure_row_contiguous=True,
    )


def head_shape(B: int, T: int, heads: int, D: int) -> tuple[int, ...]:
    return B, T, heads, D


def by_head(array: Array) -> Array:
    return array.transpose(0, 2, 1, 3)


def partial_sums(rows: int) -> int:
    return -(-rows // (THREADS // 32))  # one a block, which has a warp for each of its rows


def embedding_gradient(rows: Array, ids: Array, vocab_size: int) -> Array:
    N, C = rows.shape
    inputs, sizes = [rows, ids, mx.argsort(ids)], {"C": C, "RUN": RUN, "rows": N}
    return launch("embedding_backward", inputs, [(vocab_size, C)], sizes, N, [mx.float32])[0]


# ---- compiling ------------------------------------------------------------------------------------------------------


@cache
def compiled(kernel: str, constants: tuple[int, ...], blocks: tuple[Span, ...]) -> tuple[str, bytes]:
    """Return the name and machine code of one kernel for these sizes; raise RuntimeError with the compiler's words."""
    expression = f"{kernel}<{', '.join(map(str, constants))}>"
    options = (f"--gpu-architecture={mx.device_info()['architecture']}", "--std=c++17", *piece_options(blocks))
    recipe = (SOURCE.read_bytes(), expression, options, nvrtc_version())
    name, _, binary = kept(kernel, recipe, lambda: compile_source(expression, options)).read_bytes().partition(b"\n")
    return name.decode(), binary


def piece_options(blocks: Spans) -> list[str]:
    """Return the compiler options for a row's pieces: their number, positions, and pointers to three gradients each."""
    if not blocks:
        return []
    names = {of: [f"{of}{i}" for i in range(len(blocks))] for of in ("dq", "dk", "dv")}
    defined = {
        "PIECES": str(len(blocks)),
        "START": ",".join(str(start) for start, _, _ in blocks),
        "STOP": ",".join(str(stop) for _, stop, _ in blocks),
        "FROM": ",".join(str(first) for _, _, first in blocks),
        "PIECE_ARGUMENTS": ",".join(f"const bf16* {name}" for name in (*names["dq"], *names["dk"], *names["dv"])),
        **{f"PIECE_{of.upper()}": ",".join(names[of]) for of in names},
    }
    return [f"--define-macro={name}={value}" for name, value in defined.items()]


@cache
def nvrtc() -> ctypes.CDLL:
    """Return the NVRTC library, which MLX has already loaded."""
    versions = ("12", "13") if hardware.installed("mlx-cuda-12") else ("13", "12")
    for name in (*(f"libnvrtc.so.{version}" for version in versions), "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = error
    raise reason


def nvrtc_version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_source(expression: str, options: Sequence[str]) -> bytes:
    """Compile one instance of a kernel's template; return its mangled name, a newline, and the cubin."""
    library, program = nvrtc(), ctypes.c_void_p()
    check(library.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), b"cuda.cu", 0, None, None))
    try:
        check(library.nvrtcAddNameExpression(program, expression.encode()))
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), arguments)
        if status:
            raise RuntimeError(
                f"{expression} does not compile: {text(library, program, 'ProgramLog').decode().rstrip(chr(0))}"
            )
        name = ctypes.c_char_p()
        check(library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(name)))
        return bytes(name.value or b"") + b"\n" + text(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC failed with status {status}")
