"""A corpus is prepared whole, and interruptions and damage are noticed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from conftest import TEST_SCALE, write_library_text
from nights import environment
from pyarrow import parquet

import prepare
from prepare import DataError, batches, load_data

ROOT = Path(prepare.__file__).parent


def contents(folder: Path) -> dict[str, str]:
    return {name: record["sha256"] for name, record in load_data(folder).manifest["files"].items()}


# ---- interruption, damage, company -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """Write several units of real text."""
    folder = tmp_path_factory.mktemp("library")
    text = write_library_text(folder / "all", chars=6_000_000).read_text()
    for index, at in enumerate(range(0, len(text), 1_500_000)):
        (folder / f"{index}.txt").write_text(text[at : at + 1_500_000])
    (folder / "all").unlink()
    return folder


@pytest.fixture(scope="module")
def undisturbed(library, tmp_path_factory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("undisturbed")
    return contents(prepare.prepare(str(library), prepare.SCALES["tiny"], cache=cache, workers=1))


def begin(library: Path, cache: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "prepare.py", "--dataset", str(library), "--scale", "tiny", "--workers", "2"]
    env = environment(NIGHTSHIFT_CACHE=str(cache))
    return subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_killed_preparation_goes_on_and_ends_the_same(library, undisturbed, tmp_path):
    with begin(library, tmp_path) as child:
        while not list(tmp_path.glob("data/*/build/*.npz")):
            assert child.poll() is None
            time.sleep(0.002)
        workers = psutil.Process(child.pid).children()
        child.kill()
    (build,) = tmp_path.glob("data/*/build")
    assert not (build.parent / "manifest.json").exists()
    left = psutil.wait_procs(workers, timeout=10)[1]  # the first process of some containers waits for no other
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []
    (build / ".part.npz.1.ab12cd34").write_bytes(b"half of a part")
    assert contents(prepare.prepare(str(library), prepare.SCALES["tiny"], cache=tmp_path, workers=2)) == undisturbed
    assert not build.exists()


@pytest.mark.slow
def test_two_preparations_at_once_make_one_corpus(library, undisturbed, tmp_path):
    children = [begin(library, tmp_path) for _ in "ab"]
    said = [child.communicate(timeout=600)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sum("already prepared" in text for text in said) == 1
    (manifest,) = tmp_path.glob("data/*/manifest.json")
    assert contents(manifest.parent) == undisturbed


@pytest.fixture
def small(tiny_data, tmp_path) -> Path:
    """Copy a prepared corpus; its text stays where it is."""
    shutil.copytree(tiny_data.parents[1], tmp_path / "cache")
    return tmp_path / "cache" / "data" / tiny_data.name


@pytest.fixture
def prepare_again(tiny_data, tmp_path) -> Callable[[], Path]:
    text = tiny_data.parents[2] / "library.txt"
    return lambda: prepare.prepare(str(text), TEST_SCALE, cache=tmp_path / "cache", workers=1)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("name", "damage"),
    [("train.tokens.npy", flip_a_bit), ("tokenizer.tiktoken", flip_a_bit), ("train.offsets.npy", truncate)],
)
def test_a_damaged_file_is_named_and_then_rebuilt(small, prepare_again, name, damage):
    before = contents(small)
    damage(small / name)
    with pytest.raises(DataError, match=rf"{re.escape(name)} is damaged.* run python prepare\.py --dataset"):
        load_data(small)
    (small / "holdout.tokens.npy").unlink()  # a training sandbox lacks this file as well
    assert contents(prepare_again()) == before


def test_a_changed_text_becomes_a_corpus_beside_the_old_one_which_a_night_may_be_training_on(
    small, tiny_data, tmp_path
):
    before = contents(small)
    longer = shutil.copy(tiny_data.parents[2] / "library.txt", tmp_path)
    with Path(longer).open("a") as file:
        file.write("\n\nOne more paragraph.\n")
    changed = prepare.prepare(longer, TEST_SCALE, cache=tmp_path / "cache", workers=1)
    assert changed != small
    assert contents(changed) != before
    assert contents(small) == before


def test_a_training_sandbox_without_held_out_arrays_still_trains(small):
    for path in [*small.glob("validation.*"), *small.glob("holdout.*"), small / "tokenizer.tiktoken"]:
        path.unlink()
    data = load_data(small)
    next(batches(data.split("train"), data.bos, rows=2, seq_len=data.seq_len, seed=0))
    with pytest.raises(DataError, match="holds no validation split"):
        data.split("validation")


def test_the_fingerprint_is_that_of_the_protocol_alone(small):
    data = load_data(small)
    assert re.fullmatch(r"[0-9a-f]{12}", data.fingerprint)
    manifest = json.loads((small / "manifest.json").read_text())

    def fingerprint(**changes) -> str:
        (small / "manifest.json").write_text(json.dumps(manifest | changes))
        return load_data(small).fingerprint

    assert fingerprint(versions={}, dataset="elsewhere", skipped={}) == data.fingerprint
    assert fingerprint(eval_tokens=1) != data.fingerprint != fingerprint(seq_len=128)


# ---- where, and what cannot be used ----------------------------------------------------------------------------------


def test_a_corpus_is_chosen_for_all_folders_or_for_one_unless_the_environment_names_another(
    small, tiny_data, tmp_path, monkeypatch
):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    text, other = tiny_data.parents[2] / "library.txt", shutil.copy(tiny_data.parents[2] / "library.txt", tmp_path)

    def chosen(folder: str, *choice: object) -> Path | None:
        """Say what a folder uses after this choice of a text was made there."""
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        if choice:
            prepare.prepare(str(choice[0]), TEST_SCALE, workers=1, use=choice[1])
        return prepare.data_dir()

    (small.parent / "selected").unlink()
    assert chosen("mine", text, "nowhere") is None
    assert chosen("mine", text, "everywhere") == small
    own = chosen("mine", other, "here")
    assert own not in (None, small)
    assert (chosen("mine"), chosen("theirs"), chosen("mine", text, "nowhere")) == (own, small, own)
    assert chosen("theirs", text, "everywhere") == small
    assert (chosen("mine"), chosen("mine", text, "everywhere")) == (own, small), "a choice for all is one for here"
    shutil.rmtree(small)
    with pytest.raises(DataError, match=r"no whole corpus in .*: run python prepare\.py"):  # no other text is taken
        prepare.ensure_data()


def test_a_choice_that_was_made_before_holds_on(small, tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    (small.parent / "selected").write_text(f"{small.name}\n")
    assert load_data().folder == small
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"no corpus is prepared: run python prepare\.py"):
        load_data()
    monkeypatch.chdir(small.parent)
    monkeypatch.setenv("NIGHTSHIFT_DATA", small.name)
    assert load_data().folder == small, "absolute: a run has another working folder"


def test_the_default_is_prepared_where_nothing_is(library, tmp_path, monkeypatch):
    """A short standard library does."""
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(library))
    manifest = prepare.ensure_data().manifest
    assert (manifest["dataset"], manifest["scale"]) == ("stdlib", prepare.SCALE_OF_DEVICE[prepare.device_kind()])


def table_of(texts: list[str | None]) -> bytes:
    parquet.write_table(pa.table({"text": pa.array(texts, pa.string())}), file := io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize(
    "name", [b"caf\xe9\n\x1b[31m.txt", b"x" * 246 + b".txt", "汉".encode() * 80 + b".txt"], ids=len
)
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_name_of_any_bytes_and_any_length_names_a_corpus(tmp_path, monkeypatch, name, is_folder):
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    path = tmp_path / os.fsdecode(name)
    if is_folder:
        path.mkdir()
        (path / "binary.txt").write_bytes(b"\0")
    write_library_text(path / "a.txt" if is_folder else path, chars=600_000)
    assert prepare.main(["--scale", "tiny", "--workers", "1", "--dataset", str(path)]) == 0
    data = prepare.load_data()
    json.dumps(data.manifest, ensure_ascii=False).encode()
    assert data.folder.name.encode().isascii() == (b"\xe6" not in name)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, r"holds no \.txt"),
        ({"a.txt": b""}, r"is empty: give files with text"),
        ({"a.parquet": []}, r"is empty: give files with text"),
        ({"a.parquet": [None, ""], "b.jsonl": b"\r\n\n"}, r"is empty: give files with text"),
        ({"a.txt": "text".encode("utf-16")}, r"holds no UTF-8 text \(for example .*a\.txt\): convert it"),
        ({"a.txt": b"\0\1\2"}, r"holds no UTF-8 text \(for example .*a\.txt\)"),
        ({"a.txt": b"just a few words"}, r"too small: its \w+ split has \d+ tokens and .* needs 513; give more text$"),
        (None, r"nowhere does not exist: give the path of a file or folder, or choose stdlib, "),
    ],
)
def test_a_bad_corpus_ends_in_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys, files, sentence):
    source = tmp_path / ("nowhere" if files is None else "corpus")
    if files is not None:
        source.mkdir()
    for name, data in (files or {}).items():
        (source / name).write_bytes(table_of(data) if isinstance(data, list) else data)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    assert prepare.main(["--scale", "tiny", "--workers", "1", "--dataset", str(source)]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("prepare: ")
    assert re.search(sentence, last)
    assert not (tmp_path / "cache").exists()  # a refusal leaves nothing behind


def test_a_disk_that_is_too_small_is_seen_before_the_work(tmp_path, monkeypatch):
    text = write_library_text(tmp_path / "library.txt", chars=1_500_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**6, 10**6, 0))
    with pytest.raises(DataError, match=r"not enough space in .*: about 2 MB needed and 0 MB free; free some, or set"):
        prepare.prepare(str(text), TEST_SCALE, cache=tmp_path / "cache", workers=1)
