"""A file of weights is measured by its header: a true header gives all its numbers, a false one none."""

import io
import json

import mlx.core as mx
import pytest

from agent.runs.train import HEADER_BYTES, count_params, read_params

TWO = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
TWO["b"] = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}


def counted(header: object, data_bytes: int = 32, said_bytes: int | None = None) -> int | None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if said_bytes is None else said_bytes
    whole = length.to_bytes(8, "little") + text + bytes(data_bytes)
    return count_params(io.BytesIO(whole), len(whole))


def test_what_mlx_saves_is_counted(tmp_path):
    weights = {"x": mx.zeros((3, 5)), "y": mx.zeros((7,), mx.bfloat16), "z": mx.zeros((2, 2), mx.uint8)}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)
    assert read_params(tmp_path) == 26


def test_a_header_that_could_carry_weights_itself_counts_nothing():
    assert counted({"__metadata__": {"note": "0" * 500}, **TWO}) == 10
    assert counted({"__metadata__": {"more": "0" * 3000}, **TWO}) is None
    assert counted({"a": TWO["a"], "b" * 3000: TWO["b"]}) is None


def a(**changes: object) -> dict:
    return {"a": TWO["a"] | changes, "b": TWO["b"]}


@pytest.mark.parametrize(
    "header",
    [
        *([], b"not json", b"[" * 100_000, b"\xff\xfe", {"a": [], "b": TWO["b"]}, {"b": TWO["b"]}),
        *(a(dtype="F31"), a(dtype=["F32"]), a(shape=[2, -3]), a(shape=[2, 3.0]), a(shape=[True, 6]), a(shape="23")),
        *(a(shape=[10**300, 0]), a(shape=[1] * 17)),
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 24]}}',
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_header_that_does_not_account_for_every_byte_counts_nothing(header):
    assert counted(header) is None


def test_a_file_that_is_longer_or_shorter_than_its_header_says_counts_nothing():
    assert counted(TWO, 31) is counted(TWO, 33) is None
    for said in (0, 1, HEADER_BYTES + 1, 2**64 - 1):
        assert counted(TWO, said_bytes=said) is None
    assert count_params(io.BytesIO(b""), 0) is count_params(io.BytesIO(b"\x02\0"), 2) is None
