"""Keep compiled kernels as files in the user's cache folder, named by their recipe and a checksum."""

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from agent.lab import hardware


def kept(kind: str, recipe: object, make: Callable[[], bytes]) -> Path:
    """Return the file that make() made of this recipe; make it again if it is missing or damaged.

    If the cache folder cannot be used, the file is in a temporary one until this process ends.
    """
    folder = hardware.cache_root() / "kernels"
    stem = f"{kind}-{digest(repr(recipe).encode())}"
    try:
        for path in folder.glob(f"{stem}-*"):
            if path.name == f"{stem}-{digest(path.read_bytes())}":  # loading a damaged file could crash the process
                return path
    except OSError:
        pass
    content = make()
    try:
        return write(folder, f"{stem}-{digest(content)}", content)
    except OSError:
        return write(temporary_folder(), stem, content)


def write(folder: Path, name: str, content: bytes) -> Path:
    hardware.write_atomically(folder / name, content)
    return folder / name


@cache
def temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="nightshift-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
