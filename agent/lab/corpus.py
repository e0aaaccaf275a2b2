"""Find the files of a dataset, cut them into units, and read a unit's documents, for processes that tokenise.

A *source* is a file: of Python's standard library, of a user's path, or of the hub. A *unit* is one worker's piece of
work: a group of small files, a byte range of a large one, or a parquet row group. Units are plain data with a stable
key, so no text is sent between processes, and finished work is recognised after a restart. A *document* is the text
between two begin-of-document tokens.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.lab.hardware import user_path, write_atomically

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")

HUB_DATASETS = {
    "climbmix": "karpathy/climbmix-400b-shuffle",
    "tinystories": "karpathy/tinystories-gpt4-clean",
}
DATASETS = ("stdlib", *HUB_DATASETS)  # any other name is a path
DEFAULT_SHARDS = {"climbmix": 10}  # about a day of tokens for one GPU; other data sets use all their shards
INSTALLED = {"site-packages", "dist-packages", "__pycache__"}  # folders to leave out: installed packages

UNIT_BYTES = 2 << 20  # a second of tokenising, so that an interruption loses little work
DOCUMENT_CHARS = 8 << 10  # paragraphs are joined up to this length
NEAR_CHARS = 1 << 10  # look for a blank line at the end of that first: finding all took 4 % of tokenising
LONGEST_CHARS = 256 << 10  # cut longer documents
PIECES = 100  # cut those into shorter ones that are longer than this part of a small text: each split gets some

TERMINAL_EVERY_S, LOG_EVERY_S = 1.0, 60.0  # s between two lines about a long step, in a terminal and in a log
CLEAR = "\x1b[K"  # the rest of a terminal's line

# Arrow's types of text: strings, or bytes that should be UTF-8; a dictionary stores each text once.
TEXT_TYPE = re.compile(r"(?:dictionary<values=)?(?:large_)?(?:string|binary)(?:_view)?\b[^<]*")
UNFIT = re.compile(r"[^\w.-]+")  # characters that a folder's name does not get
NAME_CHARS = 48  # characters of up to four bytes; a file name may have 255 bytes
BLANK_LINES = re.compile(r"\n(?:[ \t\r]*\n)+")

Split = Literal["train", "validation", "holdout"]
SPLITS: tuple[Split, ...] = ("train", "validation", "holdout")


class DataError(Exception):
    """Say why data cannot be used, in one sentence with the value and the remedy."""


class UnfinishedError(DataError):
    """Say why preparing stopped; finished work is kept, and the same command goes on from there."""


class NoTextError(DataError):
    """Say that the records of a table have no field 'text'."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes for a class of device. They are part of the protocol: results at other scales never compare."""

    name: str
    seq_len: int
    vocab_size: int  # BOS included
    eval_tokens: int  # most tokens of each held-out split
    smaller: str | None = field(default=None, repr=False)  # name of the next smaller scale; not part of the identity


# ---- identity --------------------------------------------------------------------------------------------------------


def document_hash(document: str) -> int:
    """Return the first 8 bytes of a text's sha256 as a number, which alone determines its split and rank."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big")


def split_of_hash(value: int) -> Split:
    percent = value % 100
    if percent < 5:
        return "validation"
    return "holdout" if percent < 10 else "train"


def split_of(document: str) -> Split:
    """Return the split of a document, independent of other files: 5 % are validation, 5 % holdout."""
    return split_of_hash(document_hash(document))


@dataclass(frozen=True, slots=True)
class Span:
    """Name a piece of one file: bytes start to stop - 1, or those row groups of a parquet file."""

    path: str
    size_bytes: int
    mtime_ns: int
    start: int
    stop: int
    text_bytes: int  # uncompressed


@dataclass(frozen=True, slots=True)
class Unit:
    """Name the pieces of files that one process reads in one go."""

    spans: tuple[Span, ...]
    longest_chars: int = LONGEST_CHARS  # longest document; the spans of all units determine it

    @property
    def key(self) -> str:
        """Return a key that changes with a file's path, size, modification time or range."""
        return hashlib.sha256(repr(self.spans).encode()).hexdigest()

    @property
    def text_bytes(self) -> int:
        return sum(span.text_bytes for span in self.spans)


# ---- dataset → sources -----------------------------------------------------------------------------------------------


def corpus_name(dataset: str) -> str:
    """Return the start of a prepared folder's name: the dataset's name, or that of the user's file or folder.

    Of the latter, only letters, digits and few signs, and only so many that the whole is a name of a file.
    """
    return dataset if dataset in DATASETS else UNFIT.sub("_", user_path(dataset).absolute().stem)[:NAME_CHARS]


def find_sources(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """Return the files of a dataset in a stable order, downloaded from the hub if necessary.

    Raise DataError if the dataset is unknown, holds no file of a known kind, or cannot be downloaded.
    """
    if dataset == "stdlib":
        return _files_below(Path(sysconfig.get_path("stdlib")))
    if dataset in HUB_DATASETS:
        return _download(dataset, shards or DEFAULT_SHARDS.get(dataset), cache)
    path = user_path(dataset)
    if path.is_dir():
        return _files_below(path)
    if not path.exists():
        raise DataError(f"{path} does not exist: give the path of a file or folder, or choose {', '.join(DATASETS)}")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{path} is not a {' '.join(SUFFIXES)} file: unpack, convert or rename it, or give a folder of such files"
        )
    return [path]


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    closed: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if name not in INSTALLED and not name.startswith(".")]
        found += [Path(root, name) for name in names if name.lower().endswith(SUFFIXES)]
    files = sorted((path for path in found if path.is_file()), key=Path.as_posix)
    example = f"{closed[0].filename} cannot be read ({closed[0].strerror})" if closed else ""
    if not files:
        missing = example or f"{folder} holds no {' '.join(SUFFIXES)} file"
        raise DataError(f"{missing}: give a folder with text")
    if closed:
        say(f"leaving out {len(closed)} folder{'s' * (len(closed) > 1)}: for example, {example}")
    tables = {path: error for path in files if (error := without_text(path)) is not None}
    if tables and len(tables) == len(files):
        raise tables[files[0]]
    if tables:
        say(f"leaving out {len(tables)} of {len(files)} files: for example, {next(iter(tables.values()))}")
    return [path for path in files if path not in tables]


def _download(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """Return the parquet files of a hub dataset at the revision seen first, so that later calls need no network."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    repo = HUB_DATASETS[dataset]
    try:
        revision, names = _listing(repo, cache / "hub" / f"{dataset}.json")
        pool = ThreadPoolExecutor(4)
        try:
            fetch = functools.partial(hf_hub_download, repo, repo_type="dataset", revision=revision)
            files = []
            disable_progress_bars()  # ours is for all files together
            with progress(f"downloading {dataset}", len(names[:shards])) as advance:
                for path in pool.map(fetch, names[:shards]):
                    files.append(Path(path))
                    advance(1)
            return files
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a failure or Ctrl-C does not wait for the other files
    except Exception as error:  # the hub, HTTP and socket layers raise unrelated classes
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise  # encode.file_errors() explains a full disk
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(
            f"{dataset} ({repo}) could not be downloaded: {reason.rstrip('.')}; run the same command again to go on, "
            "or take --dataset stdlib, which needs no network"
        ) from error


def _listing(repo: str, kept: Path) -> tuple[str, list[str]]:
    from huggingface_hub import HfApi

    if not kept.exists():
        info = HfApi().dataset_info(repo)
        names = sorted(file.rfilename for file in info.siblings or [] if file.rfilename.endswith(".parquet"))
        write_atomically(kept, json.dumps({"revision": info.sha, "files": names}).encode())
    listing = json.loads(kept.read_bytes())
    return listing["revision"], listing["files"]


# ---- sources → units -------------------------------------------------------------------------------------------------


def without_text(path: Path) -> NoTextError | None:
    """Return the error of a table without text, which a folder of text may hold; None for any other file."""
    try:
        if path.suffix.lower() == ".parquet":
            _row_group_bytes(path)
        elif path.suffix.lower() == ".jsonl":
            with path.open("rb") as file:
                first = next((line for line in file if line.strip()), None)
            if first is not None:
                _text_field(first, path)
    except NoTextError as error:
        return error
    return None


def plan_units(sources: Iterable[Path]) -> list[Unit]:
    """Cut sources into units of about UNIT_BYTES, with small files grouped in order."""
    groups: list[list[Span]] = []
    room = text_bytes = 0
    with progress("looking into the files"):
        for span in itertools.chain.from_iterable(map(_spans, sources)):
            if not groups or span.text_bytes > room:
                groups.append([])
                room = UNIT_BYTES
            groups[-1].append(span)
            room -= span.text_bytes
            text_bytes += span.text_bytes
    longest_chars = max(DOCUMENT_CHARS, min(text_bytes // PIECES, LONGEST_CHARS))
    return [Unit(tuple(group), longest_chars) for group in groups]


def _spans(path: Path) -> Iterator[Span]:
    status = path.stat()
    known = (str(path.absolute()), status.st_size, status.st_mtime_ns)
    if path.suffix.lower() == ".parquet":
        for index, text_bytes in enumerate(_row_group_bytes(path)):
            yield Span(*known, index, index + 1, text_bytes)
        return
    start = 0
    while start < status.st_size:
        stop = _aligned(path, start + UNIT_BYTES, status.st_size)
        yield Span(*known, start, stop, stop - start)
        start = stop


def _aligned(path: Path, nominal: int, size: int) -> int:
    """Return where to cut a file, from byte `nominal` on: after a blank line, else a line end, else a character."""
    if nominal >= size:
        return size
    if path.suffix.lower() == ".jsonl":
        with path.open("rb") as file:
            file.seek(nominal - 1)
            file.readline()  # never cut a record
            return file.tell()
    with path.open("rb") as file:
        file.seek(nominal)
        window = file.read(64 << 10)
    for ending in (b"\n\n", b"\n\r\n", b"\n"):
        if (at := window.find(ending)) >= 0:
            return nominal + at + len(ending)
    return nominal + next((i for i, byte in enumerate(window[:4]) if byte & 0xC0 != 0x80), 0)


@contextmanager
def _parquet(path: str | Path) -> Iterator[ParquetFile]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except (ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a readable parquet file ({error}): replace or remove it") from error


def _row_group_bytes(path: Path) -> list[int]:
    with _parquet(path) as file:
        schema, groups = file.schema_arrow, [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    if not any(field.name == "text" and TEXT_TYPE.fullmatch(str(field.type)) for field in schema):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise NoTextError(f"{path} has no column 'text' of strings, only {columns}: rename or convert it")
    chunks = [[group.column(i) for i in range(group.num_columns)] for group in groups]
    return [sum(c.total_uncompressed_size for c in group if c.path_in_schema == "text") for group in chunks]


# ---- units → documents -----------------------------------------------------------------------------------------------


def read_documents(unit: Unit, skipped: list[str]) -> Iterator[str]:
    """Yield the non-empty documents of a unit in order; joined they give its text back.

    Text that is not UTF-8 or holds NUL is left out, and its path is appended to `skipped`. Raise DataError for a jsonl
    line without text, or an unreadable parquet file.
    """
    for span in unit.spans:
        suffix = Path(span.path).suffix.lower()
        if suffix == ".parquet":
            texts = _parquet_rows(span)
        elif (text := _text(span)) is None:
            skipped.append(span.path)
            continue
        elif suffix == ".jsonl":
            texts = _json_lines(span, text.removeprefix("\ufeff"))
        else:
            texts = iter([text]) if suffix == ".py" else paragraphs(text)
        for document in texts:
            if _is_unicode(document):
                yield from cut(document, unit.longest_chars)
            else:
                skipped.append(span.path)


def _text(span: Span) -> str | None:
    with Path(span.path).open("rb") as file:
        file.seek(span.start)
        data = file.read(span.stop - span.start)
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_unicode(document: str) -> bool:
    """Return whether a document is valid Unicode without NUL: JSON can hold half of a surrogate pair."""
    try:
        document.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in document


def _parquet_rows(span: Span) -> Iterator[str]:
    with _parquet(span.path) as file:
        for batch in file.iter_batches(256, row_groups=range(span.start, span.stop), columns=["text"]):
            for text in filter(None, batch.column(0).to_pylist()):
                yield text.decode(errors="surrogateescape") if isinstance(text, bytes) else text


def _json_lines(span: Span, text: str) -> Iterator[str]:
    for line in text.split("\n"):  # splitlines() would also cut at U+2028, which JSON strings may hold
        if line.strip():
            yield _text_field(line, span.path)


def _text_field(line: str | bytes, path: str | Path) -> str:
    try:
        document = json.loads(line)["text"]
        if document is None:
            return ""  # a table's empty cell gives an empty text as well
    except (ValueError, KeyError, TypeError, RecursionError):  # RecursionError: thousands of nested brackets
        document = None
    if not isinstance(document, str):
        start = (line.decode(errors="replace") if isinstance(line, bytes) else line).strip()[:60]
        raise NoTextError(f'{path} has a line that is not {{"text": "…"}} ({start!r}): correct or remove it')
    return document


def paragraphs(text: str) -> Iterator[str]:
    """Yield documents of up to DOCUMENT_CHARS characters, cut after blank lines."""
    start = 0
    while (stop := _document_end(text, start)) is not None:
        yield text[start:stop]
        start = stop
    yield text[start:]


def _document_end(text: str, start: int) -> int | None:
    """Return the end of the last blank line within DOCUMENT_CHARS of `start`, else of the next one; None if none."""
    reach = start + DOCUMENT_CHARS
    for begin in (max(start, reach - NEAR_CHARS), start):
        ends = (match.end() for match in BLANK_LINES.finditer(text, begin))
        last = max(itertools.takewhile(lambda end: end <= reach, ends), default=None)
        if last is not None:
            return last
    following = BLANK_LINES.search(text, start)
    return None if following is None else following.end()


def cut(document: str, longest_chars: int = LONGEST_CHARS) -> Iterator[str]:
    """Yield pieces of at most longest_chars characters, cut at line ends if there are any."""
    start = 0
    while start < len(document):
        stop = start + longest_chars
        if stop < len(document):
            stop = document.rfind("\n", start, stop) + 1 or stop
        yield document[start:stop]
        start = stop


# ---- saying ----------------------------------------------------------------------------------------------------------


def say(message: str, end: str = "\n") -> None:
    """Print a sentence for whoever waits; the work goes on where it cannot be printed."""
    with suppress(OSError):
        start = f"\r{CLEAR}" if sys.stderr.isatty() else ""  # a line that changes may stand there
        print(f"{start}{message}", end=end, file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Say during the `with` block how far a step is: on a terminal in a line that changes, elsewhere every minute.

    Yield a function that takes how much more is done. total: how much that is in the end; None if it is not known.
    """
    done, over, is_terminal = [0.0], threading.Event(), sys.stderr.isatty()

    def advance(more: float) -> None:
        done[0] += more

    def report() -> None:
        began = time.monotonic()
        while not over.wait(TERMINAL_EVERY_S if is_terminal else LOG_EVERY_S):
            share = f"{done[0] / total:.0%} after " if total else ""
            line = f"{what}: {share}{time.monotonic() - began:.0f} s"
            if is_terminal:
                columns = shutil.get_terminal_size().columns - 1
                say(line[:columns], end="")
            else:
                say(line)

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield advance
    finally:
        over.set()
        reporter.join()
        if is_terminal:
            say("", end="")
