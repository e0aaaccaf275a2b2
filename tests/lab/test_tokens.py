"""Text becomes tokens and comes back, each document is in one split, and every byte is scored once."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TEST_SCALE, write_library_text

import prepare
from agent.lab import encode
from agent.lab.corpus import SPLITS, Scale, plan_units, read_documents, split_of
from agent.lab.packing import Tokens
from prepare import evaluate_bpb, evaluation_rows, load_data


def text_of(tokens: Tokens, document: int) -> list[int]:
    return tokens.tokens[tokens.offsets[document] + 1 : tokens.offsets[document + 1]].tolist()


# ---- tokenizer -------------------------------------------------------------------------------------------------------

WILD = [
    *("", " ", "a" * 5000, "<|bos|> and <|endoftext|> are text", "\r\n\t mixed \u2028 line ends\n\n\n"),
    "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)])),
]


@pytest.mark.parametrize("text", WILD, ids=range(len(WILD)))
def test_any_text_round_trips_and_its_bytes_are_those_of_its_tokens(tiny_data, text):
    data, encoding = load_data(tiny_data), encode.load_encoding(tiny_data / "tokenizer.tiktoken")
    ids = encoding.encode_ordinary(text)
    assert encoding.decode(ids) == text
    assert data.bos not in ids
    assert data.token_bytes[ids].sum() == len(text.encode())


@pytest.mark.slow
def test_a_text_too_plain_for_the_vocabulary_gets_a_smaller_one(tmp_path):
    (tmp_path / "plain.txt").write_text("".join(f"{'ab ' * (100 + i)}\n\n" for i in range(2000)))
    data = load_data(prepare.prepare(str(tmp_path), TEST_SCALE, cache=tmp_path / "cache", workers=1))
    assert 257 <= data.vocab_size < 512
    assert data.vocab_size == len(data.token_bytes)
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
        decoded = [encoding.decode(text_of(tokens, d)) for d in range(len(tokens.offsets) - 1)]
        expected = [document for document in documents if split_of(document) == split]
        assert (decoded == expected) if split == "train" else (sorted(decoded) == sorted(expected))
        summary = load_data(folder).manifest["splits"][split]
        assert summary["bytes"] == sum(len(document.encode()) for document in expected)
        assert np.array_equal(np.flatnonzero(tokens.tokens == encoding.n_vocab - 1), tokens.offsets[:-1])


# ---- the metric ------------------------------------------------------------------------------------------------------


def test_bits_per_byte_of_a_hand_computed_example(tmp_path):
    mx = pytest.importorskip("mlx.core")
    # BOS a b | BOS c, with p(a) = 1/2, p(b) = 1/4, p(c) = p(BOS) = 1/8: 1 + 2 + 3 bits for 1 + 1 + 2 bytes
    np.save(tmp_path / "validation.tokens.npy", np.array([3, 0, 1, 3, 2], np.uint16))
    np.save(tmp_path / "validation.offsets.npy", np.array([0, 3, 5]))
    data = prepare.Data(tmp_path, 3, 4, 3, np.array([1, 1, 2, 0], np.int32), {"eval_tokens": 5})
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
    scores = []
    for rows in (1, 7, 1000):
        monkeypatch.setitem(prepare.EVAL_LOGITS_BYTES, prepare.device_kind(), rows * 4 * 64 * 512)
        scores.append(evaluate_bpb(lambda tokens: table[tokens], data))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-6)


def test_logits_of_another_shape_are_refused(tiny_data):
    mx = pytest.importorskip("mlx.core")
    with pytest.raises(ValueError, match=r"shape \(\d+, 64, 511\) where .*\(\d+, 64, 512\)"):
        evaluate_bpb(lambda x: mx.zeros((*x.shape, 511)), load_data(tiny_data))
