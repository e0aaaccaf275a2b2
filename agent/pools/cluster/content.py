"""Files by their checksums: the code and the content that go to a node, and the place where a node keeps them."""

import hashlib
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from agent.errors import MachineError
from agent.files import remove
from agent.invocation import PACKAGE
from agent.lab.hardware import cache_root, write_atomically
from agent.pools.cluster.messages import Piece
from agent.records.checksums import digest
from agent.runs.jobs import AuditRun, Job
from agent.runs.runner import Runner

PIECE_BYTES = 32 << 20  # of a file, in one message
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # of every file in the zip, so that equal code has equal bytes


def code_of_harness() -> tuple[str, bytes]:
    """Return the checksum and the bytes of a zip file with the harness's own code, as it runs here."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as code:
        for path in sorted(paths):
            name = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), FIRST_DATE)
            name.external_attr = 0o644 << 16
            code.writestr(name, path.read_bytes())
    return hashlib.sha256(file.getvalue()).hexdigest(), file.getvalue()


def digests_of(folder: Path, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return the checksums of these files of a folder, by default of all in it."""
    if names is None:
        names = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    return {name: digest(folder / name) for name in sorted(names)}


def digest_of_all(files: Mapping[str, str]) -> str:
    """Return one checksum of names and contents together."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def pieces(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yield offset and content of each piece of a file, and whether it is the last; an empty file is one piece."""
    size, offset = path.stat().st_size, 0
    with path.open("rb") as file:
        while True:
            piece = file.read(PIECE_BYTES)
            yield offset, piece, offset + len(piece) >= size
            offset += len(piece)
            if offset >= size or not piece:
                return


def put_pieces(at: Path, next_piece: Callable[[int], object]) -> None:
    """Write a file of the pieces that a node sends, from an offset on; raise MachineError if it arrived damaged."""
    at.parent.mkdir(parents=True, exist_ok=True)
    with at.open("wb") as file:
        checksum = None
        while checksum is None:
            piece = next_piece(file.tell())
            assert isinstance(piece, Piece)
            file.write(piece.content)
            checksum = piece.digest
    if digest(at) != checksum:
        raise MachineError("they arrived damaged")


def is_inside(name: str) -> bool:
    """Return whether a relative path stays in its folder."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def place_in(folder: Path, name: str) -> Path:
    """Return the path for a file below a folder, free of any link or pipe that a script has left on the way."""
    at, above = folder / name, [folder / one for one in Path(name).parents][-2::-1]  # from the top
    for one in above:
        if one.is_symlink() or not one.is_dir():
            remove(one)
    if at.is_symlink() or not at.is_file():
        remove(at)
    at.parent.mkdir(parents=True, exist_ok=True)
    return at


# ---- on a node -------------------------------------------------------------------------------------------------------


def home() -> Path:
    """Return the folder of a node for all that nights of a cluster keep there."""
    return cache_root() / "ray"


def blob(checksum: str) -> Path:
    """Return the path of the file with this checksum."""
    return home() / "files" / checksum


def missing(files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the checksums of files that are not here; a path to the same content on this machine will do."""
    return tuple(checksum for checksum, path in files.items() if not _is_here(checksum, Path(path)))


def _is_here(checksum: str, original: Path) -> bool:
    kept = blob(checksum)
    if kept.is_file() and digest(kept) == checksum:
        kept.touch()
        return True
    kept.unlink(missing_ok=True)
    with suppress(OSError):
        if original.is_file() and digest(original) == checksum:
            kept.parent.mkdir(parents=True, exist_ok=True)
            aside = kept.with_name(f"{checksum}.{os.getpid()}.part")
            shutil.copyfile(original, aside)
            aside.rename(kept)
            return True
    return False


def store(checksum: str, sender: str, offset: int, piece: bytes, *, last: bool) -> None:
    """Add a piece to a file; after the last one, verify the checksum and give the file its name."""
    unfinished = blob(checksum).with_name(f"{checksum}.{sender}.part")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with unfinished.open("r+b" if offset else "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(piece)
    if last:
        if digest(unfinished) != checksum:
            unfinished.unlink()
            raise MachineError("a file arrived damaged: its checksum is another one")
        unfinished.rename(blob(checksum))


def folder_with(kind: str, files: Mapping[str, str], *, verify: bool = False) -> Path:
    """Return the folder of a node with these files, made of what it has; raise MachineError if one is missing.

    verify: make it again if one of them has changed.
    """
    folder = home() / kind / digest_of_all(files)[:32]
    aside = folder.with_name(f"{folder.name}.{os.getpid()}.new")
    if not all((folder / name).is_file() for name in files) or (verify and digests_of(folder, files) != dict(files)):
        remove(aside)
        for name, checksum in files.items():
            put_file(checksum, aside / name)
        remove(folder)
        aside.rename(folder)
    return folder


def put_file(checksum: str, at: Path) -> None:
    """Give a file of this checksum another place as well: no second copy, where the disk allows it."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)
    try:
        os.link(blob(checksum), at)
    except FileNotFoundError:
        raise MachineError(f"{at.name} is gone from {home()}; it comes again with the next night") from None
    except OSError:
        shutil.copyfile(blob(checksum), at)


# ---- with a job ------------------------------------------------------------------------------------------------------


def files_for(runner: Runner, job: Job, *, has_weights: bool) -> list[Path] | None:
    """Return the files of this machine that a node needs for a job; None if the weights are on neither of them."""
    if not isinstance(job, AuditRun):
        return []
    weights = runner.weights(job.attempt, job.seed)
    if not has_weights and not weights.is_file():
        return None
    files = [] if has_weights else [weights]
    files += [runner.losses(job.attempt, job.seed, job.split)]
    files += [runner.losses(*job.reference, job.split)] if job.reference else []
    return [path for path in files if path.is_file()]


def take_files(runner: Runner, files: Mapping[str, bytes]) -> None:
    """Write files of a node to the night's folder; losses are on the disk before the journal records their score."""
    for name, content in files.items():
        at = place_in(runner.folder, name)
        if at.suffix == ".f32":
            write_atomically(at, content)
        else:
            at.write_bytes(content)
