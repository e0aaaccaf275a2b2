"""Where documents come from: a corpus is cut into units that any process can read by itself.

A *source* is a file. A *unit* is what one worker reads in one go: a group of small files, a byte range of a large one,
or a parquet row group. Units are plain data with a stable key, so no text travels between processes and finished work
is recognised after a restart. A *document* is what the model sees between two begin-of-document tokens.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import itertools
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hardware import write_atomically

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

HUB_DATASETS = {
    "climbmix": "karpathy/climbmix-400b-shuffle",
    "tinystories": "karpathy/tinystories-gpt4-clean",
}
DATASETS = ("stdlib", *HUB_DATASETS)  # any other name is a path
DEFAULT_SHARDS = {"climbmix": 10}  # of 6,543; about a day of tokens for one GPU. Other datasets: all their shards
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")
INSTALLED = {"site-packages", "dist-packages", "__pycache__"}  # other people's text, or none

UNIT_BYTES = 2 << 20  # a second of tokenising: little is lost by an interruption
DOCUMENT_CHARS = 8 << 10  # paragraphs are joined up to this length
NEAR_CHARS = 1 << 10  # the end of that, where a blank line is looked for first: to find all took 4 % of tokenising
LONGEST_CHARS = 256 << 10  # longer documents are cut

BLANK_LINES = re.compile(r"\n(?:[ \t\r]*\n)+")

Split = Literal["train", "validation", "holdout"]
SPLITS: tuple[Split, ...] = ("train", "validation", "holdout")


class DataError(Exception):
    """Data that cannot be used; the message is one sentence with the value and the remedy."""


class UnfinishedError(DataError):
    """What was prepared so far is kept: the same command goes on from there."""


class NoTextError(DataError):
    """A table whose records have no field 'text'."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes that fit a class of device; part of the protocol, so that only like is compared with like."""

    name: str
    seq_len: int
    vocab_size: int  # BOS included
    eval_tokens: int  # at most, of each held-out split
    smaller: str | None = field(default=None, repr=False)  # the next; no part of a corpus's identity


# ---- identity --------------------------------------------------------------------------------------------------------


def document_hash(document: str) -> int:
    """The first 8 bytes of the text's sha256 as a number: what a document's split and rank depend on, alone."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], "big")


def split_of_hash(value: int) -> Split:
    percent = value % 100
    if percent < 5:
        return "validation"
    return "holdout" if percent < 10 else "train"


def split_of(document: str) -> Split:
    """The split of a document: 5 % validation, 5 % holdout, whatever the order or number of files."""
    return split_of_hash(document_hash(document))


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one file: bytes start to stop, or row groups start to stop of a parquet file."""

    path: str
    size_bytes: int
    mtime_ns: int
    start: int
    stop: int
    text_bytes: int  # uncompressed


@dataclass(frozen=True, slots=True)
class Unit:
    """Work for one process."""

    spans: tuple[Span, ...]

    @property
    def key(self) -> str:
        """Changes when a file's path, size or time of change does, or the range."""
        return hashlib.sha256(repr(self.spans).encode()).hexdigest()

    @property
    def text_bytes(self) -> int:
        return sum(span.text_bytes for span in self.spans)


# ---- sources → units -------------------------------------------------------------------------------------------------


def corpus_name(dataset: str) -> str:
    """How the folder of a prepared dataset begins: its name, or that of the user's file or folder."""
    return dataset if dataset in DATASETS else Path(dataset).expanduser().absolute().stem


def find_sources(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """The files of a dataset, in a stable order; those of the hub are downloaded where they are not here yet.

    Raises DataError when the dataset is unknown, holds no file of a known kind, or cannot be downloaded.
    """
    if dataset == "stdlib":
        return _files_below(Path(sysconfig.get_path("stdlib")))
    if dataset in HUB_DATASETS:
        return _download(dataset, shards or DEFAULT_SHARDS.get(dataset), cache)
    path = Path(dataset).expanduser()
    if path.is_dir():
        return _files_below(path)
    if not path.exists():
        raise DataError(f"no dataset {dataset!r}: choose stdlib, tinystories, climbmix or the path of a file or folder")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a {' '.join(SUFFIXES)} file: rename it, or give a folder of such files")
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
    tables = {path: error for path in files if (error := _without_text(path)) is not None}
    if tables and len(tables) == len(files):
        raise tables[files[0]]
    if tables:
        say(f"leaving out {len(tables)} of {len(files)} files: for example, {next(iter(tables.values()))}")
    return [path for path in files if path not in tables]


def _without_text(path: Path) -> NoTextError | None:
    """What is wrong with a table about something else, which a folder of text may well hold."""
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
    """Cut sources into units: small neighbours together, large files apart."""
    units: list[Unit] = []
    group: list[Span] = []
    room = UNIT_BYTES
    for span in itertools.chain.from_iterable(map(_spans, sources)):
        if group and span.text_bytes > room:
            units.append(Unit(tuple(group)))
            group, room = [], UNIT_BYTES
        group.append(span)
        room -= span.text_bytes
    return [*units, Unit(tuple(group))] if group else units


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
    """The first good place from byte `nominal` on to cut a file: a blank line, else a line end, else a character."""
    if nominal >= size:
        return size
    if path.suffix.lower() == ".jsonl":
        with path.open("rb") as file:
            file.seek(nominal - 1)
            file.readline()  # a record is never cut, however long
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
        names, groups = file.schema_arrow.names, [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        is_text = "text" in names and str(file.schema_arrow.field("text").type).endswith(("string", "string_view"))
    if not is_text:
        raise NoTextError(f"{path} has no column 'text' of strings, only {', '.join(names)}: rename or convert it")
    columns = [[group.column(i) for i in range(group.num_columns)] for group in groups]
    return [sum(c.total_uncompressed_size for c in group if c.path_in_schema == "text") for group in columns]


# ---- units → documents -----------------------------------------------------------------------------------------------


def read_documents(unit: Unit, skipped: list[str]) -> Iterator[str]:
    """The documents of a unit in order, none empty; joined they give its text back.

    What is not UTF-8 or holds NUL is left out and its path appended to `skipped`. Raises DataError on a jsonl line
    without text.
    """
    for span in unit.spans:
        suffix = Path(span.path).suffix.lower()
        if suffix == ".parquet":
            texts = _parquet_rows(span)
        elif (text := _text(span)) is None:
            skipped.append(span.path)
            continue
        elif suffix == ".jsonl":
            texts = _json_lines(span, text)
        else:
            texts = iter([text]) if suffix == ".py" else paragraphs(text)
        for document in texts:
            if _is_unicode(document):
                yield from cut(document)
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
    """JSON can smuggle in half of a surrogate pair, which no UTF-8 text holds."""
    try:
        document.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in document


def _parquet_rows(span: Span) -> Iterator[str]:
    with _parquet(span.path) as file:
        for batch in file.iter_batches(256, row_groups=range(span.start, span.stop), columns=["text"]):
            yield from (text for text in batch.column(0).to_pylist() if text)


def _json_lines(span: Span, text: str) -> Iterator[str]:
    for line in text.split("\n"):  # not splitlines: JSON strings may hold U+2028
        if line.strip():
            yield _text_field(line, span.path)


def _text_field(line: str | bytes, path: str | Path) -> str:
    try:
        document = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError, RecursionError):  # RecursionError: brackets in brackets, thousands deep
        document = None
    if not isinstance(document, str):
        start = (line.decode(errors="replace") if isinstance(line, bytes) else line).strip()[:60]
        raise NoTextError(f'{path} has a line that is not {{"text": "…"}} ({start!r}): correct or remove it')
    return document


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs joined up to DOCUMENT_CHARS, cut after blank lines."""
    start = 0
    while (stop := _document_end(text, start)) is not None:
        yield text[start:stop]
        start = stop
    yield text[start:]


def _document_end(text: str, start: int) -> int | None:
    """Behind the last blank line within reach of `start`, or else behind the next one, however far."""
    reach = start + DOCUMENT_CHARS
    for begin in (max(start, reach - NEAR_CHARS), start):
        ends = (match.end() for match in BLANK_LINES.finditer(text, begin))
        last = max(itertools.takewhile(lambda end: end <= reach, ends), default=None)
        if last is not None:
            return last
    following = BLANK_LINES.search(text, start)
    return None if following is None else following.end()


def cut(document: str) -> Iterator[str]:
    """Pieces of at most LONGEST_CHARS, ending at line ends where there are any."""
    start = 0
    while start < len(document):
        stop = start + LONGEST_CHARS
        if stop < len(document):
            stop = document.rfind("\n", start, stop) + 1 or stop
        yield document[start:stop]
        start = stop


# ---- downloads -------------------------------------------------------------------------------------------------------


def _download(dataset: str, shards: int | None, cache: Path) -> list[Path]:
    """The parquet files of a hub dataset, at the revision seen first: later calls need no network."""
    from huggingface_hub import hf_hub_download

    repo = HUB_DATASETS[dataset]
    try:
        revision, names = _listing(repo, cache / "hub" / f"{dataset}.json")
        pool = ThreadPoolExecutor(4)
        try:
            fetch = functools.partial(hf_hub_download, repo, repo_type="dataset", revision=revision)
            return [Path(path) for path in pool.map(fetch, names[:shards])]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a failure or Ctrl-C does not wait for the other files
    except Exception as error:  # the hub, HTTP and socket layers each have their own families
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise  # has a sentence of its own
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
    listing = json.loads(kept.read_text())
    return listing["revision"], listing["files"]


# ---- saying ---------------------------------------------------------------------------------------------------------


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
