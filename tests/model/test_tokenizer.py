"""The written tokenizer makes the same tokens of a text as the corpus's own."""

import sysconfig
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from agent.lab.encode import BOS, load_encoding
from agent.model.folder import tokenizer_json

STDLIB = Path(sysconfig.get_path("stdlib"))
ODD = (
    *("", " ", "\n", "\t x\r\n\r\n  y \u00a0 \u3000", "I'll we'VE 12345 \u00bd \u0663\u0664 x\u00b2", "a" * 31),
    *(
        "na\u00efve \u0395\u03bb\u03bb \u65e5\u672c\u8a9e \U0001f469\u200d\U0001f467",
        "    \n\n\n        ",
        "e\u0301 \u202eabc",
    ),
    "\0\x1b[31m\x7f\u2028\ufeff\U0010ffff",
)


@pytest.fixture(scope="module")
def ours(tiny_data: Path) -> tiktoken.Encoding:
    return load_encoding(tiny_data / "tokenizer.tiktoken")


@pytest.fixture(scope="module")
def theirs(ours: tiktoken.Encoding) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(ours))


def test_both_make_the_same_tokens_of_real_text(ours, theirs):
    files = [STDLIB / name for name in ("argparse.py", "_pydecimal.py", "test/test_unicode_identifiers.py")]
    for text in (*(file.read_text(encoding="utf-8") for file in files if file.exists()), *ODD):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ids == ours.encode_ordinary(text)
        assert theirs.decode(ids) == text


@settings(max_examples=50)
@given(st.text())
def test_both_make_the_same_tokens_of_any_text(ours, theirs, text):
    assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text, allowed_special="all")


def test_a_text_begins_with_bos_and_bos_inside_it_is_one_token(ours, theirs):
    text = f"one{BOS}two {BOS}"
    bos = ours.n_vocab - 1
    assert theirs.encode(text).ids == [bos, *ours.encode(text, allowed_special="all")]
    assert theirs.encode(text).ids.count(bos) == 3
    assert theirs.token_to_id(BOS) == bos
    assert theirs.get_vocab_size() == ours.n_vocab
