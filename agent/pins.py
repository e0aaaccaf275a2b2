"""What no score is taken without: the fixed files of a night and its corpus, as they were when it opened."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from agent.errors import MachineError
from agent.experiment import Night

# Of the corpus, what a score is made of. The training split is checked by training itself, against the manifest.
SCORED = ("manifest.json", "token_bytes.npy", "tokenizer.*", "validation.*", "holdout.*")


def take(fixed: Path, data: Path) -> str:
    """The pins of a night, as its journal keeps them."""
    return json.dumps({str(path.relative_to(root)): digest(path) for root, path in _pinned(fixed, data)})


def verify(night: Night, fixed: Path) -> None:
    """Raises MachineError naming the first file that is not as it was when the night opened."""
    pins: Mapping[str, str] = json.loads(night.pins)
    for root, paths in ((fixed, _fixed(fixed)), (Path(night.data), _corpus(Path(night.data)))):
        for name in sorted({str(path.relative_to(root)) for path in paths} - pins.keys()):
            raise MachineError(f"{root / name} came after night {night.tag} had opened; remove it and resume the night")
    for name, wanted in pins.items():
        path = next((root / name for root in (fixed, Path(night.data)) if (root / name).is_file()), None)
        if path is None or digest(path) != wanted:
            how = "is gone" if path is None else "was changed"
            raise MachineError(
                f"{path or fixed / name} {how} after night {night.tag} had opened, so scores would not compare; "
                f"restore it and resume the night, or begin a new one"
            )


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pinned(fixed: Path, data: Path) -> Iterator[tuple[Path, Path]]:
    yield from ((fixed, path) for path in _fixed(fixed))
    yield from ((data, path) for path in _corpus(data))


def _fixed(fixed: Path) -> Iterable[Path]:
    return sorted(path for path in fixed.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _corpus(data: Path) -> Iterable[Path]:
    return sorted(path for pattern in SCORED for path in data.glob(pattern))
