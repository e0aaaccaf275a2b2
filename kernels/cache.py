"""Machine code that was compiled once: files in the user's cache folder whose names say what they hold."""

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import hardware


def kept(kind: str, recipe: object, make: Callable[[], bytes]) -> Path:
    """The file that make() once made of this recipe; made again where it is missing or damaged.

    Where the cache folder cannot be used, the file lies in a temporary one for as long as this process lives.
    """
    folder = hardware.cache_root() / "kernels"
    stem = f"{kind}-{digest(repr(recipe).encode())}"
    try:
        for path in folder.glob(f"{stem}-*"):
            if path.name == f"{stem}-{digest(path.read_bytes())}":  # a damaged one could end the process that loads it
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
