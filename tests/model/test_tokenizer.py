"""The written tokenizer makes the same tokens of a text as the corpus's own."""

import argparse
from pathlib import Path

import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from agent.lab.encode import BOS, load_encoding
from agent.model.folder import tokenizer_json

CODE = Path(argparse.__file__).read_text(encoding="utf-8")[:20_000]
ODD = "\t x\r\n\r\n  y \u00a0 \u3000 I'll we'VE 12345 \u00bd \u0663\u0664 na\u00efve \u65e5\u672c e\u0301\0\x1b[31m"


@pytest.fixture(scope="module")
def ours(tiny_data: Path) -> tiktoken.Encoding:
    return load_encoding(tiny_data / "tokenizer.tiktoken")


@pytest.fixture(scope="module")
def theirs(ours: tiktoken.Encoding) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(ours))


@settings(max_examples=50, deadline=None)
@given(st.text())
@example(CODE)
@example(ODD)
@example(f"one{BOS}two {BOS}")
def test_both_make_the_same_tokens_of_any_text_and_it_begins_with_bos(ours, theirs, text):
    ids, bos = ours.encode(text, allowed_special="all"), ours.n_vocab - 1
    assert theirs.encode(text).ids == [bos, *ids]
    assert theirs.decode(ids, skip_special_tokens=False) == text
    assert (theirs.token_to_id(BOS), theirs.get_vocab_size()) == (bos, bos + 1)
