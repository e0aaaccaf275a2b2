"""Machine code that was compiled once: files in the user's cache folder whose names say what they hold."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import hardware


def kept(kind: str, recipe: object, make: Callable[[], bytes]) -> Path:
    """The file that make() once made of this recipe; made again where it is missing or damaged.

    Where the cache folder cannot be written, the file lies in a temporary one, and each process makes its own.
    """
    folder = hardware.cache_root() / "kernels"
    stem = f"{kind}-{digest(repr(recipe).encode())}"
    for path in folder.glob(f"{stem}-*"):
        if path.name == f"{stem}-{digest(path.read_bytes())}":  # a damaged one could end the process that loads it
            return path
    content = make()
    try:
        return write(folder, f"{stem}-{digest(content)}", content)
    except OSError:
        return write(Path(tempfile.mkdtemp(prefix="nightshift-kernels-")), stem, content)


def write(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{name}.{os.getpid()}"
    try:
        aside.write_bytes(content)
        return aside.replace(folder / name)  # whole or not at all, whoever else is making it
    finally:
        aside.unlink(missing_ok=True)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
