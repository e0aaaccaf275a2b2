"""Build a corpus: train a tokenizer, tokenise on all cores, merge, and publish token arrays with a manifest.

Every file is written aside and renamed, and every unit of work is recognised by its key. So a restart goes on after an
interruption, and never takes half a file for a whole one.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import io
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.lab.corpus import (
    DATASETS,
    SPLITS,
    DataError,
    Scale,
    Split,
    UnfinishedError,
    Unit,
    corpus_name,
    document_hash,
    progress,
    read_documents,
    say,
    split_of,
    split_of_hash,
)
from agent.lab.hardware import user_path, write_atomically

if TYPE_CHECKING:
    import tiktoken

BOS = "<|bos|>"
SPLIT_PATTERN = (  # GPT-4's, but two digits a token: a small vocabulary has no room for all numbers to 999
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
FORMAT = 1  # version of the prepared folder; older ones are prepared again
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
TOKENIZER_CHARS = 2**28  # more text does not change a small vocabulary


@dataclass(frozen=True)
class Job:
    """Name one corpus at one scale, and its folder, which other versions of the text do not change.

    A night may be training on an older version.
    """

    dataset: str
    scale: Scale
    units: Sequence[Unit]
    data: Path  # holds the folders of all corpora

    @property
    def folder(self) -> Path:
        return self.data / f"{corpus_name(self.dataset)}-{self.scale.name}-{self.recipe[:8]}"

    @property
    def build(self) -> Path:
        return self.folder / "build"

    @functools.cached_property
    def recipe(self) -> str:
        """Return a hash of everything that the result depends on."""
        everything = (FORMAT, SPLIT_PATTERN, TOKENIZER_CHARS, self.scale, [unit.key for unit in self.units])
        return _sha256(repr(everything).encode())


def build(job: Job, workers: int) -> None:
    """Prepare the corpus in its folder; raise DataError if the text cannot be used or does not fit on the disk."""
    _check_text(job)
    _check_space(job)
    with processes(min(workers, len(job.units))) as pool:  # the processes start up while the tokenizer is trained
        tokenizer = _train_tokenizer(job)
        parts = _tokenise(job, tokenizer, pool)
    with progress(f"writing the tokens of {job.dataset}"):
        manifest = _merge(job, tokenizer, parts)
    _publish(job, manifest)


def _check_text(job: Job) -> None:
    skipped: list[str] = []
    if any(document for unit in job.units for document in itertools.islice(read_documents(unit, skipped), 1)):
        return
    if skipped:
        raise DataError(f"{job.dataset} holds no UTF-8 text (for example {skipped[0]}): convert it, or give other text")
    raise DataError(f"{job.dataset} is empty: give files with text in them")


def _check_space(job: Job) -> None:
    """Raise UnfinishedError without enough disk: 2 bytes for 3.5 bytes of text, once in a part, once in the result."""
    text_bytes = sum(unit.text_bytes for unit in job.units)
    done_bytes = sum(path.stat().st_size for path in job.build.glob("*.npz"))
    need_mb, free_mb = (1.25 * text_bytes - done_bytes) / 1e6, shutil.disk_usage(job.folder).free / 1e6
    if free_mb < need_mb:
        raise UnfinishedError(_no_space(job.folder, f"about {need_mb:,.0f} MB needed and {free_mb:,.0f} MB free"))


def _no_space(folder: Path, figures: str) -> str:
    return f"not enough space in {folder}: {figures}; free some, or set NIGHTSHIFT_CACHE to a folder on a larger disk"


@contextmanager
def refusal_leaves_nothing(job: Job) -> Iterator[None]:
    """Make the job's folder, and remove it if its text is refused: corrected text gets another folder."""
    made = [folder for folder in job.folder.parents if not folder.exists()]
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except DataError as error:
        if not isinstance(error, UnfinishedError) and not (job.folder / "manifest.json").exists():
            shutil.rmtree(job.folder, ignore_errors=True)
            with suppress(OSError):  # another corpus may be there
                for folder in made:
                    folder.rmdir()
        raise


@contextmanager
def file_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into DataError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            existing = next(place for place in (folder, *folder.parents) if place.exists())
            free_mb = shutil.disk_usage(existing).free / 1e6
            raise DataError(_no_space(folder, f"{free_mb:,.0f} MB free, and the disk is full")) from error
        raise DataError(f"cannot use {error.filename or folder}: {error.strerror or error}; correct that") from error


# ---- tokenizer -------------------------------------------------------------------------------------------------------


def _train_tokenizer(job: Job) -> Path:
    """Train a byte-pair encoding on training documents; return its tiktoken file, with a token and its rank a line."""
    import rustbpe

    path = job.build / f"{job.recipe[:32]}.tiktoken"
    if not path.exists():
        what = f"training a tokenizer of {job.scale.vocab_size:,} tokens on {job.dataset}"
        say(what)
        tokenizer = rustbpe.Tokenizer()
        with progress(what):
            tokenizer.train_from_iterator(_training_text(job.units), job.scale.vocab_size - 1, pattern=SPLIT_PATTERN)
        ranks = tokenizer.get_mergeable_ranks()
        write_atomically(path, b"".join(b"%b %d\n" % (base64.b64encode(bytes(token)), rank) for token, rank in ranks))
    return path


def _training_text(units: Sequence[Unit]) -> Iterator[str]:
    room = TOKENIZER_CHARS
    for document in itertools.chain.from_iterable(read_documents(unit, []) for unit in units):
        if split_of(document) == "train":
            yield document
            room -= len(document)
            if room <= 0:
                return


def load_encoding(path: Path) -> tiktoken.Encoding:
    """Load the tokenizer of a tiktoken file, with BOS as its last token; encode text with encode_ordinary."""
    import tiktoken

    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding(path.stem, pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={BOS: len(ranks)})


def _token_bytes(encoding: tiktoken.Encoding) -> np.ndarray:  # (V,)
    """Return the UTF-8 bytes of each token (V,); 0 for BOS, which has no text."""
    lengths = [len(encoding.decode_single_token_bytes(token)) for token in range(encoding.n_vocab - 1)]
    return np.array([*lengths, 0], np.int32)


# ---- tokenising ------------------------------------------------------------------------------------------------------


def _tokenise(job: Job, tokenizer: Path, pool: Executor | None) -> list[Path]:
    """Tokenise each unit into a part file, and return the files in the units' order; existing parts are kept."""
    stamp = _sha256(tokenizer.read_bytes())
    parts = [job.build / f"{_sha256((unit.key + stamp).encode())[:32]}.npz" for unit in job.units]
    missing = [(unit, tokenizer, part) for unit, part in zip(job.units, parts, strict=True) if not part.exists()]
    with progress(f"tokenising {job.dataset}", len(missing)) as advance:
        for _ in work_through(missing, tokenise_unit, pool):
            advance(1)
    return parts


def tokenise_unit(unit: Unit, tokenizer: Path, part: Path) -> None:
    """Write the tokens, lengths and hashes of a unit's documents into one .npz file, by split."""
    encoding = _encoding_of_this_process(tokenizer)
    bos = np.array([encoding.n_vocab - 1], np.uint16)
    tokens: dict[Split, list[np.ndarray]] = {split: [] for split in SPLITS}
    hashes: dict[Split, list[int]] = {split: [] for split in SPLITS}
    skipped: list[str] = []
    for document in read_documents(unit, skipped):
        value = document_hash(document)
        # disallowed_special=(): encode text that looks like a special token as text
        ids = encoding.encode_to_numpy(document, disallowed_special=())
        tokens[split_of_hash(value)].append(np.concatenate((bos, ids.astype(np.uint16))))
        hashes[split_of_hash(value)].append(value)
    arrays = {"skipped": np.array(skipped, dtype=np.str_)}
    for split in SPLITS:
        arrays[f"{split}.tokens"] = np.concatenate([np.empty(0, np.uint16), *tokens[split]])
        arrays[f"{split}.lengths"] = np.array([len(ids) for ids in tokens[split]], np.int64)
        arrays[f"{split}.hashes"] = np.array(hashes[split], np.uint64)
    np.savez(packed := io.BytesIO(), **arrays)  # type: ignore[arg-type]
    write_atomically(part, packed.getbuffer())


_encoding_of_this_process = functools.lru_cache(1)(load_encoding)


# ---- merging ---------------------------------------------------------------------------------------------------------


def _merge(job: Job, tokenizer: Path, parts: Sequence[Path]) -> dict[str, Any]:
    """Write the arrays of the three splits into the build folder, and return the manifest.

    Raise DataError if a split has less than one row of tokens.
    """
    encoding = load_encoding(tokenizer)
    token_bytes = _token_bytes(encoding)
    files, splits = {}, {}

    def write(name: str, dtype: type, chunks: Iterable[np.ndarray], count: int) -> Path:
        files[name] = _write_array(job.build / name, dtype, chunks, count)
        return job.build / name

    for split in SPLITS:
        lengths, chunks = _in_order(parts) if split == "train" else _by_hash(parts, split, job.scale.eval_tokens)
        count = int(lengths.sum())
        _check_size(job, split, count)
        tokens = write(f"{split}.tokens.npy", np.uint16, chunks, count)
        write(f"{split}.offsets.npy", np.int64, [np.zeros(1, np.int64), np.cumsum(lengths)], len(lengths) + 1)
        splits[split] = {"tokens": count, "documents": len(lengths), "bytes": _text_bytes(tokens, token_bytes)}
    write("token_bytes.npy", np.int32, [token_bytes], len(token_bytes))
    write_atomically(job.build / "tokenizer.tiktoken", tokenizer.read_bytes())
    files["tokenizer.tiktoken"] = {"sha256": _sha256(tokenizer.read_bytes()), "bytes": tokenizer.stat().st_size}
    return _manifest(job, encoding.n_vocab, splits, files, _skipped(parts))


def _manifest(
    job: Job, vocab_size: int, splits: dict[Split, Any], files: dict[str, Any], skipped: list[str]
) -> dict[str, Any]:
    return {
        "dataset": job.dataset if job.dataset in DATASETS else _text_of(user_path(job.dataset).absolute()),
        "scale": job.scale.name,
        "seq_len": job.scale.seq_len,
        "vocab_size": vocab_size,
        "eval_tokens": job.scale.eval_tokens,
        "splits": splits,
        "skipped": {"count": len(skipped), "example": _text_of(skipped[0]) if skipped else None},
        "split_pattern": SPLIT_PATTERN,
        "files": files,
        "recipe": job.recipe,
        "versions": {name: metadata.version(name) for name in ("numpy", "rustbpe", "tiktoken")},
    }


def _text_of(path: str | Path) -> str:
    """Return a path as text that can be printed: a name may hold any bytes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _skipped(parts: Sequence[Path]) -> list[str]:
    return [str(path) for part in parts for path in _member(part, "skipped")]


def _member(part: Path, name: str) -> np.ndarray:
    with np.load(part, allow_pickle=False) as arrays:
        member: np.ndarray = arrays[name]
        return member


def _in_order(parts: Sequence[Path]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """Return the training documents in order: lengths (D,), and their tokens part by part."""
    lengths = np.concatenate([_member(part, "train.lengths") for part in parts])
    return lengths, (_member(part, "train.tokens") for part in parts)


def _by_hash(parts: Sequence[Path], split: Split, limit: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return a split's first documents in order of their hashes, `limit` tokens in all: lengths (D,) and tokens."""
    part_lengths = [_member(part, f"{split}.lengths") for part in parts]
    hashes = np.concatenate([_member(part, f"{split}.hashes") for part in parts])
    order = np.argsort(hashes, kind="stable")
    lengths = np.concatenate(part_lengths)[order]
    kept = min(len(lengths), int(np.searchsorted(np.cumsum(lengths), limit)) + 1)
    order, lengths = order[:kept], lengths[:kept]
    ranks = {int(document): rank for rank, document in enumerate(order)}
    documents: list[np.ndarray] = [np.empty(0, np.uint16)] * kept
    first = 0
    for part, counts in zip(parts, part_lengths, strict=True):
        chosen = [i for i in range(len(counts)) if first + i in ranks]
        tokens = _member(part, f"{split}.tokens") if chosen else np.empty(0, np.uint16)
        ends = np.cumsum(counts)
        for i in chosen:
            documents[ranks[first + i]] = tokens[ends[i] - counts[i] : ends[i]].copy()  # a copy releases the part
        first += len(counts)
    if kept and (surplus := int(lengths.sum()) - limit) > 0:
        lengths[-1] -= surplus
        documents[-1] = documents[-1][:-surplus]
    return lengths, documents


def _check_size(job: Job, split: Split, tokens: int) -> None:
    row = job.scale.seq_len + 1
    if tokens < row:
        remedy = f"give more text, or try --scale {job.scale.smaller}" if job.scale.smaller else "give more text"
        raise DataError(
            f"{job.dataset} is too small: its {split} split has {tokens:,} tokens and one row of scale "
            f"{job.scale.name} needs {row:,}; {remedy}"
        )


def _write_array(path: Path, dtype: type, chunks: Iterable[np.ndarray], count: int) -> dict[str, Any]:
    """Stream chunks into one .npy file of `count` numbers; return its sha256 and size."""
    header = io.BytesIO()
    shape = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(header, shape)
    digest = hashlib.sha256()
    with path.open("wb") as file:  # no memory map: on a full disk that would kill the process
        for data in itertools.chain([header.getvalue()], (chunk.tobytes() for chunk in chunks)):
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"sha256": digest.hexdigest(), "bytes": path.stat().st_size}


def _text_bytes(tokens: Path, token_bytes: np.ndarray) -> int:
    array = np.load(tokens, mmap_mode="r")
    return sum(int(token_bytes[array[at : at + 2**22]].sum(dtype=np.int64)) for at in range(0, len(array), 2**22))


def _publish(job: Job, manifest: dict[str, Any]) -> None:
    """Move all files into place, the manifest last: without it, the corpus does not exist."""
    (job.folder / "manifest.json").unlink(missing_ok=True)
    for name in manifest["files"]:
        (job.build / name).replace(job.folder / name)
    write_atomically(job.folder / "manifest.json", (json.dumps(manifest, indent=2) + "\n").encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- processes -------------------------------------------------------------------------------------------------------


@contextmanager
def processes(count: int) -> Iterator[Executor | None]:
    """Start a pool of processes for the `with` block and end them afterwards.

    Yield None instead if count is 1; the work is then done in this process. Raise UnfinishedError if one was killed.
    """
    if count < 2:
        yield None
        return
    context = multiprocessing.get_context("spawn")  # fork would copy the threads' locks
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_live_with_parent)
    try:
        with _signals_later():  # a process whose start is interrupted prints a traceback
            for _ in range(count):
                pool.submit(_import_tiktoken)
        yield pool
    except BrokenProcessPool as error:
        remedy = "run the same command again, with fewer --workers if memory is short; finished work is kept"
        raise UnfinishedError(f"one of {count} worker processes was killed: {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM until the end of the `with` block, in the thread that gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # A mask would not do: another library's threads would take the signals.
    before = {which: signal.signal(which, lambda number, _: came.append(number)) for which in INTERRUPTS}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    for number in came:
        signal.raise_signal(number)


def _import_tiktoken() -> None:
    """Start one process of the pool: it starts one for each task that finds no idle process."""
    import tiktoken  # noqa: F401


def work_through(jobs: Sequence[tuple[Any, ...]], work: Callable[..., None], pool: Executor | None) -> Iterator[None]:
    """Yield once for every finished job."""
    if pool is None:
        yield from itertools.starmap(work, jobs)
        return
    for job in as_completed([pool.submit(work, *arguments) for arguments in jobs]):
        yield job.result()


def _live_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it is gone: a killed parent cannot tell its workers to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
