"""Cut the files of a corpus into units, and read a unit's documents, for processes that tokenise in parallel.

A *source* is a file. A *unit* is one worker's piece of work: a group of small files, a byte range of a large one, or a
parquet row group. Units are plain data with a stable key, so no text is sent between processes, and finished work is
recognised after a restart. A *document* is the text between two begin-of-document tokens.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
SUFFIXES = (*TEXT_SUFFIXES, ".jsonl", ".parquet")

UNIT_BYTES = 2 << 20  # a second of tokenising, so that an interruption loses little work
DOCUMENT_CHARS = 8 << 10  # paragraphs are joined up to this length
NEAR_CHARS = 1 << 10  # look for a blank line at the end of that first: finding all took 4 % of tokenising
LONGEST_CHARS = 256 << 10  # cut longer documents

PLAIN_EVERY_S = 60.0  # between the lines on a step that takes long, where there is no terminal
BAR_AFTER_S = 1.0  # a step that is over by then needs no bar

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
    """Hold the sizes for a class of device; they are part of the protocol, so results at other scales never compare."""

    name: str
    seq_len: int
    vocab_size: int  # BOS included
    eval_tokens: int  # at most, of each held-out split
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

    @property
    def key(self) -> str:
        """Return a key that changes with a file's path, size, modification time or range."""
        return hashlib.sha256(repr(self.spans).encode()).hexdigest()

    @property
    def text_bytes(self) -> int:
        return sum(span.text_bytes for span in self.spans)


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
    units: list[Unit] = []
    group: list[Span] = []
    room = UNIT_BYTES
    with progress("looking into the files"):
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
        names, groups = file.schema_arrow.names, [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        is_text = "text" in names and str(file.schema_arrow.field("text").type).endswith(("string", "string_view"))
    if not is_text:
        raise NoTextError(f"{path} has no column 'text' of strings, only {', '.join(names)}: rename or convert it")
    columns = [[group.column(i) for i in range(group.num_columns)] for group in groups]
    return [sum(c.total_uncompressed_size for c in group if c.path_in_schema == "text") for group in columns]


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
    """Return whether a document is valid Unicode without NUL: JSON can hold half of a surrogate pair."""
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


def cut(document: str) -> Iterator[str]:
    """Yield pieces of at most LONGEST_CHARS characters, cut at line ends if there are any."""
    start = 0
    while start < len(document):
        stop = start + LONGEST_CHARS
        if stop < len(document):
            stop = document.rfind("\n", start, stop) + 1 or stop
        yield document[start:stop]
        start = stop


# ---- saying ----------------------------------------------------------------------------------------------------------


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show during the `with` block how far a step is: by a bar on a terminal, elsewhere by a line every minute.

    Yield a function that takes how much more is done. total: how much that is in the end; None if it is not known.
    """
    done, over = [0.0], threading.Event()

    def advance(more: float) -> None:
        done[0] += more

    show = _show_bar if sys.stderr.isatty() else _say_each_minute
    watcher = threading.Thread(target=show, args=(what, total, done, over), name="progress", daemon=True)
    watcher.start()
    try:
        yield advance
    finally:
        over.set()
        watcher.join()


def _show_bar(what: str, total: float | None, done: list[float], over: threading.Event) -> None:
    if over.wait(BAR_AFTER_S):
        return
    from rich.console import Console  # preparing alone shows bars, and a training run does without this package
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = () if total is None else (TextColumn("{task.percentage:.0f}%"), TimeRemainingColumn())
    columns = TextColumn("{task.description}"), BarColumn(), *left, TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(what), total=total)
        while not over.wait(0.1):
            bar.update(task, completed=done[0])


def _say_each_minute(what: str, total: float | None, done: list[float], over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(PLAIN_EVERY_S):
        share = "" if total is None else f"{done[0] / total:.0%} after "
        say(f"{what}: {share}{time.monotonic() - began:.0f} s")
