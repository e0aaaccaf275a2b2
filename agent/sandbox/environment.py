"""What a process of a night inherits: where programs, libraries and devices are, and nothing that could be a key."""

import os
from collections.abc import Mapping
from pathlib import Path

TMP = "tmp"  # in the folder of a run: its home, its TMPDIR and its caches

LIBRARIES = frozenset({"PATH", "CC", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
PLACES = frozenset({"HOME", "USER", "TMPDIR", "XDG_CACHE_HOME", "MLX_PTX_CACHE_DIR"})
LANGUAGE = frozenset(
    {"LANG", "LANGUAGE", "TZ", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"}
)
PREFIXES = ("MLX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "OPENBLAS_", "MKL_", "NIGHTSHIFT_")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def scrubbed_env(data: str) -> dict[str, str]:
    """For a process of the user's own, as `nightshift profile` starts: at home, without keys."""
    env = {name: value for name, value in os.environ.items() if _may_pass(name)}
    return env | PYTHON | {"NIGHTSHIFT_DATA": data}


def boxed_env(folder: Path, data: str) -> dict[str, str]:
    """For a process that works in a folder: home, caches and temporary files are in there, whatever box holds it."""
    own = str(folder / TMP)
    env: Mapping[str, str] = {name: value for name, value in scrubbed_env(data).items() if name not in PLACES}
    return {**env, "HOME": own, "TMPDIR": own, "USER": "nightshift", "NIGHTSHIFT_CACHE": f"{own}/cache"}


def _may_pass(name: str) -> bool:
    if any(word in name.upper() for word in SECRET_WORDS):
        return False
    return name in LIBRARIES | PLACES | LANGUAGE or name.startswith(PREFIXES)
