"""Every token reaches a row, every byte is scored once, and interruptions and damage are noticed."""

from __future__ import annotations

import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import TEST_SCALE, write_library_text

import encode
import prepare
from corpus import SPLITS, Scale, plan_units, read_documents, split_of
from packing import Tokens, pack_rows
from prepare import DataError, batches, evaluate_bpb, evaluation_rows, load_data

ROOT = Path(prepare.__file__).parent


def packed(lengths: list[int]) -> Tokens:
    """Make documents of these lengths, BOS (0) included; every token of text is a different number."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.ones(offsets[-1], np.int32)
    tokens[offsets[:-1]] = 0
    tokens[tokens > 0] = np.arange(1, int(tokens.sum()) + 1)
    return Tokens(tokens, offsets)


def run_prepare(cache: Path, *options: str, **settings) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NIGHTSHIFT_CACHE": str(cache)}
    command = [sys.executable, "prepare.py", "--scale", "tiny", *options]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False, **settings
    )


def contents(folder: Path) -> dict[str, str]:
    return {name: record["sha256"] for name, record in load_data(folder).manifest["files"].items()}


# ---- packing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_packing_uses_every_token_once_before_any_a_second_time(seed):
    rng = random.Random(seed)
    seq_len = rng.choice([3, 16, 64])
    tokens = packed([rng.choice([1, 2, 3, rng.randint(1, 40), rng.randint(1, 400)]) for _ in range(300)])
    total = int(tokens.tokens.max())
    uses = np.zeros(total + 1, int)
    for row in pack_rows(tokens, 0, seq_len=seq_len, seed=seed):
        before = uses.copy()
        np.add.at(uses, row, 1)
        if uses[1:].max() == 2:
            break
    assert (before[1:] == 0).sum() <= seq_len  # they are the first to be used in the next epoch
    for row in pack_rows(tokens, 0, seq_len=seq_len, seed=seed):
        np.add.at(uses, row, 1)
        if uses[1:].min() == 5:
            break
    assert uses[1:].max() <= 8


@pytest.mark.parametrize("lengths", [[5000], [1, 2] * 500, [2] * 3000, [17] * 100, [65, 64, 66, 1]])
def test_rows_are_full_and_made_of_runs_of_text_each_led_by_bos(lengths):
    tokens = packed(lengths)
    starts = set(tokens.tokens[tokens.offsets[:-1][np.diff(tokens.offsets) > 1] + 1].tolist())
    rows = pack_rows(tokens, 0, seq_len=64, seed=1)
    for row, _ in zip(rows, range(200), strict=False):
        assert row.shape == (65,)
        assert row.dtype == np.int32
        assert row[0] == 0
        inside = (row[1:] != 0) & (row[:-1] != 0)
        assert (np.diff(row)[inside] == 1).all()  # text in its order
        assert not starts & set(row[1:][inside].tolist())  # no two documents without BOS between them


def test_documents_that_fit_together_are_not_cut():
    tokens = packed([34, 17, 17, 34] * 300)
    beginnings = set(tokens.tokens[tokens.offsets[:-1] + 1].tolist())
    for row, _ in zip(pack_rows(tokens, 0, seq_len=33, seed=0), range(600), strict=False):
        assert beginnings.issuperset(row[1:][row[:-1] == 0].tolist())


def test_the_same_seed_gives_the_same_batches_and_another_seed_others(tiny_data):
    tokens, bos = load_data(tiny_data).split("train"), load_data(tiny_data).bos

    def first(seed: int) -> np.ndarray:
        made = batches(tokens, bos, rows=4, seq_len=128, seed=seed)
        found = np.stack([next(made) for _ in range(20)])
        made.close()
        return found

    assert first(7).shape == (20, 4, 129)
    assert np.array_equal(first(7), first(7))
    assert not np.array_equal(first(7), first(8))


def test_early_rows_are_a_fair_sample_of_the_corpus():
    """Neither long nor short documents wait for the end of the epoch."""
    tokens = packed([20, 20, 20, 500] * 3000)
    rows = [row for row, _ in zip(pack_rows(tokens, 0, seq_len=64, seed=0), range(3000), strict=False)]
    text = np.concatenate(rows)
    within = (text[text > 0] - 1) % (3 * 19 + 499)  # place among the text of four documents
    assert (within >= 3 * 19).mean() == pytest.approx(499 / 556, abs=0.03)


def text_of(tokens: Tokens, document: int) -> list[int]:
    return tokens.tokens[tokens.offsets[document] + 1 : tokens.offsets[document + 1]].tolist()


def test_closing_the_batches_ends_their_thread():
    made = batches(packed([50] * 100), 0, rows=2, seq_len=16, seed=0, prefetch=2)
    next(made)
    assert any(thread.name == "batches" for thread in threading.enumerate())
    made.close()
    assert not any(thread.name == "batches" for thread in threading.enumerate())


def test_an_error_in_the_thread_reaches_the_training_loop():
    tokens = packed([50] * 100)
    with pytest.raises(ValueError, match="broadcast"):
        next(batches(Tokens(tokens.tokens[:500], tokens.offsets), 0, rows=2, seq_len=16, seed=0))
    with pytest.raises(ValueError, match="documents without text"):
        next(batches(packed([1, 1, 1]), 0, rows=2, seq_len=16, seed=0))


# ---- tokenizer -------------------------------------------------------------------------------------------------------

WILD = [
    "",
    " ",
    "plain words",
    "🙂👩‍👩‍👧 emoji",
    "汉字和日本語、한국어",
    "\x01\x07\x1b[0m control \x7f\x85",
    "<|bos|> and <|endoftext|> are text",
    "\r\n\t mixed \u2028 line ends\n\n\n",
    "e\u0301 combining \ufeff bom \U0010ffff last",
    "١٢٣ 12345678901 ½",
    "a" * 5000,
    " " * 5000,
]


@pytest.mark.parametrize("text", WILD)
def test_any_text_round_trips_and_its_bytes_are_those_of_its_tokens(tiny_data, text):
    data, encoding = load_data(tiny_data), encode.load_encoding(tiny_data / "tokenizer.tiktoken")
    ids = encoding.encode_ordinary(text)
    assert encoding.decode(ids) == text
    assert data.bos not in ids
    assert data.token_bytes[ids].sum() == len(text.encode())


def test_every_code_point_round_trips(tiny_data):
    encoding = encode.load_encoding(tiny_data / "tokenizer.tiktoken")
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)]))
    assert encoding.decode(encoding.encode_ordinary(text)) == text


def test_bos_is_the_last_token_and_has_no_bytes(tiny_data):
    data = load_data(tiny_data)
    assert data.bos == data.vocab_size - 1 == 511
    assert data.token_bytes.shape == (512,)
    assert data.token_bytes[data.bos] == 0
    assert data.token_bytes[:-1].min() == 1


def test_a_text_too_plain_for_the_vocabulary_gets_a_smaller_one(tmp_path):
    (tmp_path / "plain.txt").write_text("".join(f"{'ab ' * (100 + i)}\n\n" for i in range(2000)))
    data = load_data(prepare.prepare(str(tmp_path), TEST_SCALE, cache=tmp_path / "cache", workers=1))
    assert 257 <= data.vocab_size < 512
    assert data.vocab_size == data.manifest["vocab_size"] == len(data.token_bytes)
    assert data.split("train").tokens.max() == data.bos == data.vocab_size - 1


# ---- splits ----------------------------------------------------------------------------------------------------------


def test_each_document_is_in_its_own_split_and_the_arrays_decode_to_it(tmp_path):
    text = write_library_text(tmp_path / "library.txt", chars=1_500_000)
    text.write_text(text.read_text().replace("self", "<|bos|>"))  # text that looks like BOS is text
    scale = Scale("whole", seq_len=64, vocab_size=512, eval_tokens=10**9)
    folder = prepare.prepare(str(text), scale, cache=tmp_path / "cache", workers=1)
    documents = [document for unit in plan_units([text]) for document in read_documents(unit, [])]
    encoding = encode.load_encoding(folder / "tokenizer.tiktoken")
    for split in SPLITS:
        tokens = load_data(folder).split(split)
        found = [encoding.decode(text_of(tokens, d)) for d in range(len(tokens.offsets) - 1)]
        expected = [document for document in documents if split_of(document) == split]
        assert (found == expected) if split == "train" else (sorted(found) == sorted(expected))
        summary = load_data(folder).manifest["splits"][split]
        assert summary["bytes"] == sum(len(document.encode()) for document in expected)
        assert np.array_equal(np.flatnonzero(tokens.tokens == encoding.n_vocab - 1), tokens.offsets[:-1])


def test_held_out_arrays_do_not_depend_on_the_order_of_files(tmp_path):
    """The same documents under other names give the same tokens to evaluate, with any tokenizer."""
    modules = write_library_text(tmp_path / "library.txt", chars=1_200_000).read_text()
    pieces = [modules[at : at + 4000] for at in range(0, len(modules), 4000)]
    texts = {}
    for folder, names in (("a", list(range(300))), ("b", random.Random(0).sample(range(300), 300))):
        (tmp_path / folder).mkdir()
        for piece, name in zip(pieces, names, strict=True):
            (tmp_path / folder / f"{name:03}.py").write_text(piece)
        prepared = prepare.prepare(str(tmp_path / folder), TEST_SCALE, cache=tmp_path / "cache", workers=1)
        encoding = encode.load_encoding(prepared / "tokenizer.tiktoken")
        tokens = {split: load_data(prepared).split(split) for split in ("validation", "holdout")}
        texts[folder] = {
            split: [encoding.decode(text_of(t, d)) for d in range(len(t.offsets) - 2)] for split, t in tokens.items()
        }
    assert texts["a"] == texts["b"]
    assert not set(texts["a"]["validation"]) & set(texts["a"]["holdout"])


def test_held_out_splits_end_at_eval_tokens(tiny_data):
    data = load_data(tiny_data)
    for split in ("validation", "holdout"):
        tokens = data.split(split)
        assert len(tokens.tokens) == tokens.offsets[-1] == TEST_SCALE.eval_tokens
        assert data.manifest["splits"][split]["bytes"] == data.token_bytes[tokens.tokens].sum()


# ---- the metric ------------------------------------------------------------------------------------------------------


def test_a_byte_uniform_model_scores_eight_bits(tmp_path):
    mx = pytest.importorskip("mlx.core")
    text = write_library_text(tmp_path / "library.txt", chars=600_000)
    scale = Scale("bytes", seq_len=100, vocab_size=257, eval_tokens=20_000)  # no merges: a token is a byte
    data = load_data(prepare.prepare(str(text), scale, cache=tmp_path / "cache", workers=1))
    assert data.vocab_size == 257
    row = mx.array([0.0] * 256 + [-math.inf])  # bytes alike, BOS never
    assert evaluate_bpb(lambda x: mx.broadcast_to(row, (*x.shape, 257)), data) == pytest.approx(8.0, abs=1e-5)


def test_bits_per_byte_of_a_hand_computed_example(tmp_path):
    mx = pytest.importorskip("mlx.core")
    # BOS a b | BOS c, with p(a) = 1/2, p(b) = 1/4, p(c) = p(BOS) = 1/8: 1 + 2 + 3 bits for 1 + 1 + 2 bytes
    np.save(tmp_path / "validation.tokens.npy", np.array([3, 0, 1, 3, 2], np.uint16))
    np.save(tmp_path / "validation.offsets.npy", np.array([0, 3, 5]))
    data = prepare.Data(tmp_path, 3, 4, 3, np.array([1, 1, 2, 0], np.int32), {})
    row = mx.log(mx.array([0.5, 0.25, 0.125, 0.125])) + 5  # logits need not be normalised
    model = lambda x: mx.broadcast_to(row, (*x.shape, 4)).astype(mx.float16)  # noqa: E731
    assert evaluate_bpb(model, data) == pytest.approx(6 / 4, abs=2e-3)


def test_every_token_after_the_first_is_predicted_once_and_from_its_own_past(tiny_data):
    data = load_data(tiny_data)
    tokens = data.split("validation")
    inputs, targets = evaluation_rows(tokens, data.bos, data.seq_len)
    assert inputs.shape == targets.shape == (544, 64)
    assert np.array_equal(targets.ravel()[: len(tokens.tokens) - 1], tokens.tokens[1:])
    assert np.array_equal(inputs.ravel()[: len(tokens.tokens)], tokens.tokens[: inputs.size])
    assert (targets.ravel()[len(tokens.tokens) - 1 :] == data.bos).all()
    assert data.token_bytes[targets].sum() == data.manifest["splits"]["validation"]["bytes"]


def test_the_score_does_not_depend_on_the_size_of_a_batch(tiny_data, monkeypatch):
    mx = pytest.importorskip("mlx.core")
    data, rng = load_data(tiny_data), np.random.default_rng(0)
    table = mx.array(rng.normal(size=(512, 512)).astype(np.float32))
    shapes = set()

    def bigram(x):
        shapes.add(x.shape)
        return table[x]

    scores = []
    for rows in (1, 7, 128):
        monkeypatch.setitem(prepare.EVAL_LOGITS_BYTES, prepare.device_kind(), rows * 4 * 64 * 512)
        scores.append(evaluate_bpb(bigram, data))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-6)
    assert shapes == {(1, 64), (7, 64), (128, 64)}  # one shape, and so one graph, for each size


def test_logits_of_another_shape_are_refused(tiny_data):
    mx = pytest.importorskip("mlx.core")
    with pytest.raises(ValueError, match=r"shape \(\d+, 64, 511\) where .*\(\d+, 64, 512\)"):
        evaluate_bpb(lambda x: mx.zeros((*x.shape, 511)), load_data(tiny_data))


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


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for orphans in /proc")
def test_a_killed_preparation_goes_on_and_ends_the_same(library, undisturbed, tmp_path):
    environment = os.environ | {"NIGHTSHIFT_CACHE": str(tmp_path)}
    command = [sys.executable, "prepare.py", "--dataset", str(library), "--scale", "tiny", "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as child:
        while not list(tmp_path.glob("data/*/build/*.npz")):
            assert child.poll() is None
            time.sleep(0.002)
        workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.send_signal(signal.SIGKILL)
    (build,) = tmp_path.glob("data/*/build")
    assert not (build.parent / "manifest.json").exists()
    (part,) = list(build.glob("*.npz"))[:1]
    wait_for_the_end_of(workers)
    (build / f".{part.name}.1.ab12cd34").write_bytes(part.read_bytes()[:100])

    doctored = tmp_path / "doctored"
    shutil.copytree(tmp_path / "data", doctored / "data")
    falsify(next(doctored.glob(f"data/*/build/{part.name}")))
    changed = contents(prepare.prepare(str(library), prepare.SCALES["tiny"], cache=doctored, workers=1))
    assert changed["train.tokens.npy"] != undisturbed["train.tokens.npy"]  # so finished parts are taken as they are

    again = run_prepare(tmp_path, "--dataset", str(library), "--workers", "2")
    assert again.returncode == 0, again.stderr
    assert contents(build.parent) == undisturbed
    assert not build.exists()


def wait_for_the_end_of(pids: list[str]) -> None:
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() and "Z" not in state_of(pid) for pid in pids):
        assert time.monotonic() < end, "workers outlive their parent"
        time.sleep(0.02)


def state_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def falsify(part: Path) -> None:
    with np.load(part) as arrays:
        changed = dict(arrays)
    changed["train.tokens"] = changed["train.tokens"][::-1].copy()
    np.savez(part, **changed)


def test_the_number_of_workers_does_not_change_the_result(library, undisturbed, tmp_path):
    folder = prepare.prepare(str(library), prepare.SCALES["tiny"], cache=tmp_path, workers=2)
    assert contents(folder) == undisturbed


def test_two_preparations_at_once_make_one_corpus(library, undisturbed, tmp_path):
    environment = os.environ | {"NIGHTSHIFT_CACHE": str(tmp_path)}
    command = [sys.executable, "prepare.py", "--dataset", str(library), "--scale", "tiny", "--workers", "1"]
    children = [subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) for _ in "ab"]
    said = [child.communicate(timeout=120)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sum("already prepared" in text for text in said) == 1
    (manifest,) = tmp_path.glob("data/*/manifest.json")
    assert contents(manifest.parent) == undisturbed


@pytest.fixture
def small(tmp_path) -> Path:
    text = write_library_text(tmp_path / "library.txt", chars=1_500_000)
    return prepare.prepare(str(text), TEST_SCALE, cache=tmp_path / "cache", workers=1)


def prepare_again(tmp_path: Path) -> Path:
    return prepare.prepare(str(tmp_path / "library.txt"), TEST_SCALE, cache=tmp_path / "cache", workers=1)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("name", ["train.tokens.npy", "validation.offsets.npy", "tokenizer.tiktoken"])
@pytest.mark.parametrize("damage", [flip_a_bit, truncate])
def test_a_damaged_file_is_named_and_then_rebuilt(small, tmp_path, name, damage):
    before = contents(small)
    damage(small / name)
    with pytest.raises(DataError, match=rf"{re.escape(name)} is damaged.* run python prepare\.py --dataset"):
        load_data(small)
    assert contents(prepare_again(tmp_path)) == before


@pytest.mark.parametrize("name", ["manifest.json", "holdout.tokens.npy"])
def test_a_missing_file_is_rebuilt(small, tmp_path, name):
    before = contents(small)
    (small / name).unlink()
    assert contents(prepare_again(tmp_path)) == before
    assert (small / name).exists()


def test_preparing_twice_changes_nothing(small, tmp_path):
    before = (small / "manifest.json").stat().st_mtime_ns
    assert prepare_again(tmp_path) == small
    assert (small / "manifest.json").stat().st_mtime_ns == before


def test_a_changed_text_becomes_a_corpus_beside_the_old_one_which_a_night_may_be_training_on(small, tmp_path):
    before = contents(small)
    with (tmp_path / "library.txt").open("a") as file:
        file.write("\n\nOne more paragraph.\n")
    changed = prepare_again(tmp_path)
    assert changed != small
    assert contents(changed) != before
    assert contents(small) == before


def test_a_training_box_without_held_out_arrays_still_trains(small):
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


def test_the_corpus_prepared_last_is_selected_unless_the_environment_names_one(small, tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "cache"))
    assert prepare.data_dir() == small
    assert load_data().folder == small
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "none"))
    assert prepare.data_dir() is None
    with pytest.raises(DataError, match=r"no corpus is prepared: run python prepare\.py"):
        load_data()
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(small))
    assert load_data().folder == small
    monkeypatch.chdir(small.parent)
    monkeypatch.setenv("NIGHTSHIFT_DATA", small.name)
    assert load_data().folder == small, "absolute: a run has another working folder"


def test_the_default_is_prepared_where_nothing_is(tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "NIGHTSHIFT_DATA"}
    environment["NIGHTSHIFT_CACHE"] = str(tmp_path)
    code = "import prepare; data = prepare.ensure_data(); print(data.manifest['dataset'], data.manifest['scale'])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "stdlib"
    assert "no corpus is prepared yet" in done.stderr


def test_reading_a_corpus_needs_none_of_the_packages_that_make_one():
    heavy = {"mlx", "pyarrow", "huggingface_hub", "tiktoken", "rustbpe", "encode", "multiprocessing", "rich"}
    code = f"import sys, prepare; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, r"holds no \.txt"),
        ({"a.txt": b""}, r"is empty: give files with text"),
        ({"a.txt": b"\0\1\2", "b.py": b"\xff\xfe"}, r"holds no UTF-8 text \(for example .*a\.txt\)"),
        (
            {"a.txt": b"just a few words"},
            r"too small: its \w+ split has \d+ tokens and .* scale tiny needs 513; give more text$",
        ),
        ({"a.jsonl": b'{"body": "x"}\n'}, r"has a line that is not"),
        (None, r"no dataset '.*nowhere': choose stdlib"),
    ],
)
def test_a_bad_corpus_ends_in_one_sentence_and_exit_code_2(tmp_path, files, sentence):
    source = tmp_path / ("nowhere" if files is None else "corpus")
    for name, data in (files or {}).items():
        source.mkdir(exist_ok=True)
        (source / name).write_bytes(data)
    if files == {}:
        source.mkdir()
    refused = run_prepare(tmp_path / "cache", "--dataset", str(source))
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith("prepare: ")
    assert re.search(sentence, last)
    assert not (tmp_path / "cache").exists()  # what was refused leaves nothing behind


def test_a_smaller_scale_is_advised_where_there_is_one(tmp_path):
    (tmp_path / "a.txt").write_text("just a few words")
    for scale, remedy in (("small", "give more text, or try --scale tiny"), ("tiny", "needs 513; give more text")):
        with pytest.raises(DataError, match=f"{remedy}$"):
            prepare.prepare(str(tmp_path / "a.txt"), prepare.SCALES[scale], cache=tmp_path / "cache", workers=1)


def test_a_refused_corpus_takes_nothing_of_its_neighbours_with_it(tmp_path):
    text = write_library_text(tmp_path / "library.txt", chars=1_500_000)
    there = prepare.prepare(str(text), TEST_SCALE, cache=tmp_path / "cache", workers=1)
    (tmp_path / "a.txt").write_text("just a few words")
    with pytest.raises(DataError):
        prepare.prepare(str(tmp_path / "a.txt"), TEST_SCALE, cache=tmp_path / "cache", workers=1)
    assert {path.name for path in (tmp_path / "cache" / "data").iterdir()} == {there.name, "selected"}


def test_a_disk_that_is_too_small_is_seen_before_the_work(tmp_path, monkeypatch):
    text = write_library_text(tmp_path / "library.txt", chars=1_500_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**6, 10**6, 0))
    with pytest.raises(DataError, match=r"not enough space in .*: about 2 MB needed and 0 MB free; free some, or set"):
        prepare.prepare(str(text), TEST_SCALE, cache=tmp_path / "cache", workers=1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"not enough space in .*MB free, and the disk is full; free some"):
        write_to_a_full_disk(tmp_path)


def write_to_a_full_disk(folder: Path) -> None:
    with encode.file_errors(folder), Path("/dev/full").open("w") as file:
        file.write("text")


def test_a_file_that_cannot_be_written_is_one_sentence(library, tmp_path):
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, 10**5))}
    refused = run_prepare(tmp_path, "--dataset", str(library), "--workers", "1", **limit)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("prepare: cannot use ")
    assert "File too large" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_help_names_every_option_with_its_default():
    text = run_prepare(Path("unused"), "--help").stdout
    for option in ("--dataset", "--scale", "--shards", "--workers"):
        assert option in text
    assert text.count("default: ") == 4
