"""Build the environment of a night's processes: where programs, libraries and devices are, without any keys.

A process that has a lease gets the part of the machine that the lease names, and is told how large it is.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.experiment.lease import WHOLE, Lease

TMP = "tmp"  # the subfolder of a run that serves as its home, TMPDIR and cache

LIBRARIES = frozenset({"PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
PLACES = frozenset({"HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "MLX_PTX_CACHE_DIR"})
LANGUAGE = frozenset(
    {"LANG", "LANGUAGE", "TZ", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"}
)
PREFIXES = ("MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def scrubbed_env(data: str) -> dict[str, str]:
    """Return the environment of an unboxed process, as `nightshift profile` starts: the user's home, but no keys."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | PYTHON | {"NIGHTSHIFT_DATA": data}


def boxed_env(folder: Path, data: str, lease: Lease = WHOLE) -> dict[str, str]:
    """Return the environment of a boxed process: its home, caches and temporary files are in its working folder."""
    own = str(folder / TMP)
    env: Mapping[str, str] = {name: value for name, value in scrubbed_env(data).items() if name not in PLACES}
    places = {"HOME": own, "TMPDIR": own, "USER": "nightshift", "NIGHTSHIFT_CACHE": f"{own}/cache"}
    return {**env, **places, **leased_env(lease)}


def leased_env(lease: Lease) -> dict[str, str]:
    """Return the variables by which libraries, and hardware.py, keep to a lease; none for the whole machine."""
    env = {} if lease.gpu is None else {"CUDA_VISIBLE_DEVICES": lease.gpu}
    if lease.cores:
        env |= {name: _fewer(os.environ.get(name), len(lease.cores)) for name in THREADS}
    if lease.of_cores is not None:
        env["NIGHTSHIFT_OF_CORES"] = str(lease.of_cores)
    if lease.share < 1:
        env["NIGHTSHIFT_MEMORY_SHARE"] = f"{lease.share:g}"
    return env


def _fewer(asked: str | None, cores: int) -> str:
    """Return the number of threads: one a core, or the user's own choice if it is smaller."""
    return str(min(cores, int(asked)) if asked is not None and asked.isdecimal() and int(asked) else cores)


@contextmanager
def pinned(lease: Lease) -> Iterator[None]:
    """Pin the calling thread to the lease's cores for the `with` block: processes that it starts inherit them."""
    if not lease.cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, lease.cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in SECRET_WORDS):
        return False
    return name in LIBRARIES | PLACES | LANGUAGE or name.startswith(PREFIXES)
