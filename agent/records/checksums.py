"""Take checksums of a night's fixed files and corpus when it opens, and verify them before every score."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from agent.errors import MachineError
from agent.experiment import Night

# Files of the corpus that a score depends on. Training itself checks the training split against the manifest.
SCORED = ("manifest.json", "token_bytes.npy", "tokenizer.*", "validation.*", "holdout.*")


def take(fixed: Path, data: Path) -> dict[str, dict[str, str]]:
    """Return the checksums of a night, kind → file → sha256."""
    return {kind: {name: digest(root / name) for name in names} for kind, root, names in _files(fixed, data)}


def verify(night: Night, fixed: Path) -> None:
    """Raise MachineError with the first file that has changed since the night opened."""
    for kind, root, names in _files(fixed, Path(night.data)):
        wanted = night.pins.get(kind, {})
        for name in sorted({*names, *wanted}):
            _verify(night, root / name, wanted.get(name))


def _verify(night: Night, path: Path, wanted: str | None) -> None:
    if not path.is_file() or digest(path) != wanted:
        how = "came" if wanted is None else "was changed" if path.is_file() else "is gone"
        raise MachineError(
            f"{path} {how} after night {night.tag} had opened, so scores would not compare; "
            f"undo that and resume the night, or begin a new one"
        )


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(fixed: Path, data: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield kind, folder and file names; by kind, so that a file of one kind cannot replace one of the other."""
    yield "fixed", fixed, names_in(fixed)
    yield "corpus", data, [path.name for pattern in SCORED for path in data.glob(pattern)]


def names_in(fixed: Path) -> list[str]:
    """Return the files in a folder of fixed files, as paths below it."""
    paths = (path for path in fixed.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [str(path.relative_to(fixed)) for path in paths]
