"""Open a prepared corpus: three splits as arrays of tokens, and a manifest with their sha256, in one folder."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.lab.corpus import DataError
from agent.lab.hardware import cache_root, user_path, write_atomically
from agent.lab.packing import Tokens


def data_dir() -> Path | None:
    """Return $NIGHTSHIFT_DATA, else the corpus that was chosen for the current folder, else the default, else None."""
    if folder := os.environ.get("NIGHTSHIFT_DATA"):
        return user_path(folder).absolute()  # runs have another working folder
    for folder_with_choice in (Path(), None):
        with suppress(OSError):  # there is no choice, or no cache: who writes there says why that is so
            data = cache_root() / "data"
            return data / _choice(data, folder_with_choice).read_text(encoding="utf-8").strip()
    return None


def select(corpus: Path, folder: Path | None = None) -> None:
    """Choose a corpus, whose lock is held, for a folder alone, or as the default, for the current folder at least."""
    data = corpus.parent
    write_atomically(corpus / "selected", f"{corpus.name}\n".encode())
    (corpus / "selected").replace(_choice(data, folder))
    if folder is None:
        _choice(data, Path()).unlink(missing_ok=True)


def _choice(data: Path, folder: Path | None = None) -> Path:
    """Return the file that names the corpus of a folder; None: of all folders without such a file."""
    of = "" if folder is None else f".{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]}"
    return data / f"selected{of}"


@dataclass(frozen=True, eq=False)
class Data:
    """A prepared corpus."""

    folder: Path
    seq_len: int
    vocab_size: int
    bos: int
    token_bytes: np.ndarray  # (V,) int32: UTF-8 bytes of each token, 0 for BOS
    manifest: dict[str, Any]

    def split(self, name: str) -> Tokens:
        """Return a split, memory-mapped; raise DataError where its files are missing: only train is there to train."""
        try:
            tokens = np.load(self.folder / f"{name}.tokens.npy", mmap_mode="r", allow_pickle=False)
            offsets = np.load(self.folder / f"{name}.offsets.npy", mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise DataError(f"{self.folder} holds no {name} split: use another, or run python prepare.py") from error
        return Tokens(tokens, offsets)

    @property
    def fingerprint(self) -> str:
        """Return 12 hex characters, equal for two corpora only if results on them may be compared."""
        contents = {name: record["sha256"] for name, record in self.manifest["files"].items()}
        protocol = [contents, self.seq_len, self.vocab_size, self.manifest["eval_tokens"]]
        return hashlib.sha256(json.dumps(protocol, sort_keys=True).encode()).hexdigest()[:12]


def load_data(folder: Path | None = None, *, verify: bool = True) -> Data:
    """Load the corpus in a folder, by default in data_dir().

    Raise DataError if there is none, or if a file that is present differs from the manifest.
    """
    folder = folder or data_dir()
    if folder is None:
        raise DataError("no corpus is prepared: run python prepare.py")
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if verify:
            _verify(folder, manifest)
        token_bytes = np.load(folder / "token_bytes.npy", allow_pickle=False)
        vocab_size = manifest["vocab_size"]
        return Data(folder, manifest["seq_len"], vocab_size, vocab_size - 1, token_bytes, manifest)
    except FileNotFoundError as error:
        remedy = "unset NIGHTSHIFT_DATA or correct it" if "NIGHTSHIFT_DATA" in os.environ else "run python prepare.py"
        raise DataError(f"no whole corpus in {folder} ({error.filename} is missing): {remedy}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'manifest.json'} is damaged: run python prepare.py again to rebuild it") from error


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    files = [(folder / name, record) for name, record in manifest["files"].items()]
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter lock
        for (path, _), is_damaged in zip(files, pool.map(lambda file: _is_damaged(*file), files), strict=True):
            if is_damaged:
                again = f"python prepare.py --dataset {shlex.quote(manifest['dataset'])} --scale {manifest['scale']}"
                raise DataError(f"{path} is damaged: it is not the file that was prepared; run {again} to rebuild it")


def _is_damaged(path: Path, record: dict[str, Any]) -> bool:
    """Return whether a file differs from its record; some sandboxes hide held-out files, others refuse access."""
    try:
        with path.open("rb") as file:
            is_whole: bool = path.stat().st_size == record["bytes"]
            return not (is_whole and hashlib.file_digest(file, "sha256").hexdigest() == record["sha256"])
    except (FileNotFoundError, PermissionError):
        return False


def evaluation_rows(tokens: Tokens, bos: int, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets, both (R, T) int32, in which every token after the first is a target once.

    The last row is filled up with BOS, which does not count, as it has no bytes.
    """
    rows = -(-(len(tokens.tokens) - 1) // seq_len)
    line = np.full(rows * seq_len + 1, bos, np.int32)
    line[: len(tokens.tokens)] = tokens.tokens
    return line[:-1].reshape(rows, seq_len), line[1:].reshape(rows, seq_len)
