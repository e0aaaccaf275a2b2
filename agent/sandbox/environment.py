"""Build the environment of a night's processes: where programs, libraries and devices are, without any keys.

A process that has a lease gets the part of the machine that the lease names, and is told how large it is. Variables
that change how the same script computes its numbers pass, and are part of a night's protocol.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from agent.experiment import WHOLE, Lease

TMP = "tmp"  # the subfolder of a run that serves as its home, TMPDIR and cache

LIBRARIES = frozenset({"PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
PLACES = frozenset({"HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "MLX_PTX_CACHE_DIR"})
LANGUAGE = frozenset({"LANG", "LANGUAGE", "TZ"})
PREFIXES = ("LC_", "MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Variable(NamedTuple):
    """Name a variable that changes precision, or the code that computes, on these kinds of device."""

    name: str
    kinds: str
    usual: str  # a regular expression: values with the same effect as none


ZERO, NOT_ZERO = r"(?!\s*[+-]?0*[1-9]).*", r"\s*[+-]?0*[1-9].*"  # as C's atoi reads them for MLX: 0 where no digit is
SETTINGS = (
    Variable("MLX_ENABLE_TF32", "cuda metal", NOT_ZERO),  # 0: products of float32 keep all bits
    Variable("NVIDIA_TF32_OVERRIDE", "cuda", NOT_ZERO),  # 0: the same, for all of NVIDIA's libraries
    Variable("MLX_CUDA_USE_CUDNN_SDPA", "cuda", NOT_ZERO),  # 0: another attention
    Variable("MLX_SDPA_VJP_FALLBACK", "metal", ZERO),  # another backward pass of attention
    Variable("MLX_METAL_GPU_ARCH", "metal", ""),  # the generation for which MLX chooses its kernels
    Variable("MLX_DISABLE_COMPILE", "cpu cuda metal", r"(?!)"),  # even as 0
    Variable("NIGHTSHIFT_KERNELS", "cpu cuda", ""),
    Variable("NIGHTSHIFT_BLAS", "cpu", r"(?!off$).*"),
)
PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def settings_in(environment: Mapping[str, str], device_kind: str) -> str:
    """Return the settings that are not as usual, for instance MLX_ENABLE_TF32=0; several are joined by a plus."""
    unusual = {
        variable.name: value
        for variable in SETTINGS
        if device_kind in variable.kinds
        and (value := environment.get(variable.name)) is not None
        and not re.fullmatch(variable.usual, value)
    }
    return "+".join(f"{name}={re.sub(r'[^A-Za-z0-9_.-]', '_', value)}" for name, value in unusual.items())


def scrubbed_env(data: str) -> dict[str, str]:
    """Return the environment of an unboxed process, as `nightshift profile` starts: the user's home, but no keys."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | PYTHON | {"NIGHTSHIFT_DATA": data}


def boxed_env(folder: Path, data: str, lease: Lease = WHOLE) -> dict[str, str]:
    """Return the environment of a boxed process: its home, caches and temporary files are in its working folder."""
    own = str(folder / TMP)
    env = {name: value for name, value in scrubbed_env(data).items() if name not in PLACES}
    places = {"HOME": own, "TMPDIR": own, "USER": "nightshift", "NIGHTSHIFT_CACHE": f"{own}/cache"}
    return env | places | leased_env(lease)


def leased_env(lease: Lease) -> dict[str, str]:
    """Return the variables by which libraries and agent/lab/hardware.py keep to a lease; none for the whole machine."""
    env = {} if lease.gpu is None else {"CUDA_VISIBLE_DEVICES": lease.gpu}
    if lease.cores:
        env |= {name: _threads(os.environ.get(name, ""), len(lease.cores)) for name in THREADS}
    if lease.of_cores is not None:
        env["NIGHTSHIFT_OF_CORES"] = str(lease.of_cores)
    if lease.share < 1:
        env["NIGHTSHIFT_MEMORY_SHARE"] = f"{lease.share:g}"
    return env


def _threads(asked: str, cores: int) -> str:
    """Return the user's number of threads if it is smaller than the number of cores, else one thread a core."""
    return asked if asked.isdecimal() and 0 < int(asked) < cores else str(cores)


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in SECRET_WORDS):
        return False
    return name in LIBRARIES | PLACES | LANGUAGE or name.startswith(PREFIXES)
