"""Build the environment of a night's processes: where programs, libraries and devices are, without any keys."""

import os
from collections.abc import Mapping
from pathlib import Path

TMP = "tmp"  # the subfolder of a run that serves as its home, TMPDIR and cache

LIBRARIES = frozenset({"PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
PLACES = frozenset({"HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "MLX_PTX_CACHE_DIR"})
LANGUAGE = frozenset(
    {"LANG", "LANGUAGE", "TZ", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"}
)
PREFIXES = ("MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def scrubbed_env(data: str) -> dict[str, str]:
    """Return the environment of an unboxed process, as `nightshift profile` starts: the user's home, but no keys."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | PYTHON | {"NIGHTSHIFT_DATA": data}


def boxed_env(folder: Path, data: str) -> dict[str, str]:
    """Return the environment of a boxed process: its home, caches and temporary files are in its working folder."""
    own = str(folder / TMP)
    env: Mapping[str, str] = {name: value for name, value in scrubbed_env(data).items() if name not in PLACES}
    return {**env, "HOME": own, "TMPDIR": own, "USER": "nightshift", "NIGHTSHIFT_CACHE": f"{own}/cache"}


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in SECRET_WORDS):
        return False
    return name in LIBRARIES | PLACES | LANGUAGE or name.startswith(PREFIXES)
