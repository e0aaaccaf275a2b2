"""Files become documents without loss, each in one split, and unusable files get one sentence."""

from __future__ import annotations

import functools
import http.server
import json
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import write_library_text
from nights import environment
from pyarrow import parquet

from agent.lab import corpus
from agent.lab.corpus import DataError, find_sources, plan_units, read_documents, split_of

ROOT = Path(corpus.__file__).parents[2]


def documents(path: Path) -> list[str]:
    units = plan_units(find_sources(str(path), None, path.parent))
    return [document for unit in units for document in read_documents(unit, [])]


def wild_text(chars: int) -> str:
    """Generate paragraphs, blank lines of every kind, long lines, and characters of one to four bytes."""
    pieces = ["word ", "Ünïcödé ", "汉字", "🙂", "\n", "\n\n", "\r\n\r\n", "\n \t\n", "x" * 500, "\u2028", "\ufeff"]
    return "".join(random.Random(0).choices(pieces, k=chars // 40))


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".txt", ".py"])
def test_the_documents_of_a_file_join_to_its_text(tmp_path, suffix):
    text = wild_text(700_000)
    path = tmp_path / f"wild{suffix}"
    path.write_bytes(text.encode())
    assert "".join(documents(path)) == text


@pytest.mark.parametrize("line", ["é", "漢" * 5000 + "\n"])
def test_a_file_of_several_units_joins_to_its_text_even_without_line_ends(tmp_path, line):
    text = line * (6_000_000 // len(line.encode()))
    path = tmp_path / "large.txt"
    path.write_bytes(text.encode())
    units = plan_units([path])
    assert len(units) > 1
    assert max(unit.text_bytes for unit in units) < 1.1 * corpus.UNIT_BYTES
    assert "".join(documents(path)) == text


def test_long_documents_are_cut_at_line_ends(tmp_path):
    path = tmp_path / "long.py"
    path.write_text("x = 1  # a line\n" * 40_000)
    texts = documents(path)
    assert len(texts) > 1
    assert all(document.endswith("\n") and len(document) <= corpus.LONGEST_CHARS for document in texts)


def test_a_py_file_is_one_document_and_a_jsonl_line_and_a_parquet_row_too(tmp_path):
    texts = ["one\n\ntwo", "drei\u2028vier", "五 🙂"]
    (tmp_path / "a.py").write_text(texts[0])
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": text, "id": 1}) + "\n\n" for text in texts))
    table = pa.table({"id": [1, 2, 3, 4], "text": [*texts, None]})
    parquet.write_table(table, tmp_path / "c.parquet", row_group_size=2)
    assert documents(tmp_path / "a.py") == texts[:1]
    assert documents(tmp_path / "b.jsonl") == texts
    assert documents(tmp_path / "c.parquet") == texts
    assert documents(tmp_path) == [texts[0], *texts, *texts]


def test_a_large_jsonl_is_cut_between_records(tmp_path):
    texts = [f"{i} " + "text " * 200 for i in range(6000)]
    path = tmp_path / "large.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert len(plan_units([path])) > 2
    assert documents(path) == texts


KINDS = [
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_binary())),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_text_in_a_table_is_read_whatever_kind_of_string_it_is(tmp_path, kind):
    texts = ["one\n\ntwo", None, "", "五 🙂", "one\n\ntwo"]
    values = (
        pa.array(texts).cast(kind.value_type).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(texts)
    )
    parquet.write_table(pa.table({"id": range(5), "text": values.cast(kind)}), tmp_path / "a.parquet")
    assert documents(tmp_path / "a.parquet") == list(filter(None, texts))


def test_bytes_in_a_table_that_are_no_text_are_left_out(tmp_path):
    parquet.write_table(pa.table({"text": [b"caf\xe9", b"whole", b"a\0b"]}), tmp_path / "a.parquet")
    skipped: list[str] = []
    (unit,) = plan_units([tmp_path / "a.parquet"])
    assert (list(read_documents(unit, skipped)), len(skipped)) == (["whole"], 2)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\n\n", "\n \r\n"])
def test_a_jsonl_of_another_editor_is_read(tmp_path, line_end):
    lines = [json.dumps({"text": text}) for text in ("one", None, "two", "")]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + line_end.join(lines).encode())
    assert documents(tmp_path / "a.jsonl") == documents(tmp_path) == ["one", "two"]


@pytest.mark.parametrize("name", ["a.txt", "a.py", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("line", ["a line of text, as a log has it\n", "no line ends. "])
def test_a_single_long_document_has_text_in_each_split(tmp_path, name, line):
    text = "".join(f"{number} {line}" for number in range(40_000))
    if name == "a.parquet":
        parquet.write_table(pa.table({"text": [text]}), tmp_path / name)
    else:
        (tmp_path / name).write_text(json.dumps({"text": text}) if name == "a.jsonl" else text)
    sizes = Counter[str]()
    for document in documents(tmp_path / name):
        sizes[split_of(document)] += len(document)
    assert sizes.total() == len(text)
    assert min(sizes[split] for split in corpus.SPLITS) > 8000


# ---- splits and keys -------------------------------------------------------------------------------------------------


def test_splits_hold_5_5_and_90_percent_and_a_text_is_always_in_the_same():
    texts = [f"document {i}" for i in range(20_000)]
    counts = Counter(map(split_of, texts))
    assert 800 < counts["validation"] < 1200
    assert 800 < counts["holdout"] < 1200
    assert [split_of(text) for text in ("a", "b", "c")] == ["train", "train", "train"]


# ---- what cannot be used ---------------------------------------------------------------------------------------------


def test_files_that_are_not_utf8_are_left_out_and_counted(tmp_path):
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "binary.txt").write_bytes(b"ab\0cd")
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "half.jsonl").write_text('{"text": "\\ud83d"}\n{"text": "whole"}\n')
    skipped: list[str] = []
    (unit,) = plan_units(find_sources(str(tmp_path), None, tmp_path))
    assert list(read_documents(unit, skipped)) == ["good", "whole"]
    assert [Path(path).name for path in skipped] == ["binary.txt", "half.jsonl", "latin.txt"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "fine"}\n{"body": "no"}\n', r'a\.jsonl has a line that is not .*"body"'),
        ("a.jsonl", b"[" * 100_000 + b"\n", r"a\.jsonl has a line that is not .*\('\[\[\["),
        ("a.parquet", b"PAR1 but not really", r"a\.parquet is not a readable parquet file"),
        ("a.docx", b"?", r"a\.docx is not a \.txt"),
        ("a.jsonl.gz", b"\x1f\x8b", r"a\.jsonl\.gz is not a \.txt.* unpack, convert or rename it"),
        ("a.jsonl", b'{"text": ["a"]}\n', r"a\.jsonl has a line that is not"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        documents(tmp_path / name)


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.string()), pa.struct({"text": pa.string()})], ids=str)
def test_a_table_without_strings_is_named_with_its_columns(tmp_path, kind):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": pa.nulls(2, kind), "content": ["a", "b"]}), path)
    with pytest.raises(DataError, match=r"no column 'text' of strings, only text \(.*\), content \(string\): rename"):
        documents(path)


# ---- downloads -------------------------------------------------------------------------------------------------------

REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.SimpleHTTPRequestHandler):
    """Serve enough of the hub's protocol to list and fetch a dataset: a folder with listing.json and data/."""

    def translate_path(self, path: str) -> str:
        name = "listing.json" if path.startswith("/api/") else path.partition(f"/resolve/{REVISION}/")[2]
        return str(Path(self.directory) / name)

    def end_headers(self) -> None:
        self.send_header("ETag", f'"{Path(self.path).name}-1"')
        self.send_header("X-Repo-Commit", REVISION)
        super().end_headers()

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def hub(tmp_path) -> Iterator[str]:
    modules = write_library_text(tmp_path / "library.txt", chars=900_000).read_text()
    rows = [modules[at : at + 3000] for at in range(0, len(modules), 3000)]
    (tmp_path / "hub" / "data").mkdir(parents=True)
    parquet.write_table(pa.table({"text": rows}), tmp_path / "hub" / "data" / "all.parquet", row_group_size=50)
    siblings = [{"rfilename": "data/all.parquet"}]
    listing = {"id": "karpathy/tinystories-gpt4-clean", "sha": REVISION, "siblings": siblings}
    (tmp_path / "hub" / "listing.json").write_text(json.dumps(listing))
    handler = functools.partial(Hub, directory=str(tmp_path / "hub"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def prepare_tinystories(folder: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    hub = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "prepare.py", "--dataset", "tinystories", "--scale", "tiny", "--workers", "1"]
    env = environment(NIGHTSHIFT_CACHE=str(folder / "cache"), **hub)
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_a_dataset_is_fetched_from_the_hub_once(tmp_path, hub):
    fetched = prepare_tinystories(tmp_path, hub)
    assert fetched.returncode == 0, fetched.stderr
    (manifest,) = tmp_path.glob("cache/data/tinystories-tiny-*/manifest.json")
    assert sum(split["documents"] for split in json.loads(manifest.read_text())["splits"].values()) == 300
    offline = prepare_tinystories(tmp_path, "http://127.0.0.1:9")
    assert offline.returncode == 0, offline.stderr
    assert "already prepared" in offline.stderr


def test_without_network_one_sentence_says_so(tmp_path):
    failed = prepare_tinystories(tmp_path, "http://127.0.0.1:9")
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert re.search(r"prepare: tinystories .* could not be downloaded: .*--dataset stdlib", failed.stderr)


def test_tables_about_something_else_are_left_out_of_a_folder_of_text(tmp_path, capsys):
    (tmp_path / "notes.md").write_text("words")
    (tmp_path / "prices.jsonl").write_text('{"price": 3}\n')
    parquet.write_table(pa.table({"carat": [1.0]}), tmp_path / "diamonds.parquet")
    assert [path.name for path in find_sources(str(tmp_path), None, tmp_path)] == ["notes.md"]
    assert "leaving out 2 of 3 files" in capsys.readouterr().err
