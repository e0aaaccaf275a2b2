"""A model's text is made in the sandbox, and can do nothing to a terminal."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from nights import PROJECT, bubblewrap, unigram, usable
from samples import NIGHT

import prepare
from agent.errors import MachineError
from agent.experiment import Night, Options
from agent.model.sampler import continuation
from agent.model.sampling import sample
from agent.runs.fixed import lay_out_fixed
from agent.script.contract import fixed_files


@dataclass
class Bench:
    """A night's folder with weights, which a script reads."""

    night: Night
    folder: Path

    def sample(self, text: str, script: str, tokens: int = 5) -> str:
        weights = self.folder / "model.safetensors"
        return sample(self.night, self.folder, script, weights, text, seed=0, tokens=tokens, temperature=0.0)


@pytest.fixture
def bench(tmp_path: Path, tiny_data: Path, own_cache: None) -> Bench:
    folder = tmp_path / "repository" / "experiments" / "nights" / "t"
    lay_out_fixed(PROJECT, fixed_files(PROJECT, unigram()), folder / "fixed")
    size = prepare.load_data(tiny_data, verify=False).vocab_size
    mx.save_safetensors(str(folder / "model.safetensors"), {"logits": mx.zeros(size)})
    return Bench(dataclasses.replace(NIGHT, data=str(tiny_data), options=Options(sandbox="off")), folder)


def with_model(body: str) -> str:
    """A script whose model returns these logits for tokens (B, T)."""
    return f"""
import os
from pathlib import Path

import mlx.core as mx


def load_model(weights):
    table = mx.load(weights)["logits"]

    def model(tokens):
        {body}
    return model


def main(): ...
"""


COPIES = with_model("return 100 * mx.eye(table.size)[tokens]")  # the last token again and again


def drawn(model: Callable[[mx.array], mx.array], prompt: list[int], count: int, temperature=0.0, seed=0) -> list[int]:
    """The tokens after the prompt, of 4 in all, whose rows have 128 positions."""
    data = SimpleNamespace(seq_len=128, bos=3)
    return list(islice(continuation(model, prompt, data, temperature, seed), count))


def test_temperature_0_takes_the_likeliest_token_and_others_draw_by_their_probability_and_a_seed():
    logits = mx.array([1.0, 3.0, 2.0, -100.0])
    model = lambda tokens: mx.broadcast_to(logits, (*tokens.shape, 4))  # noqa: E731
    assert drawn(model, [3], 5) == [1] * 5
    tokens = drawn(model, [3], 3000, 2.0, seed=1)
    assert drawn(model, [3], 9, 2.0, seed=1) == tokens[:9] != drawn(model, [3], 9, 2.0, seed=2)
    expected, counts = 3000 * np.array(mx.softmax(logits / 2)), np.bincount(tokens, minlength=4)
    assert (abs(counts - expected) <= 4 * expected**0.5).all(), (counts, expected)


def test_the_model_gets_the_whole_context_or_as_much_of_its_end_as_fits_a_row():
    seen: list[list[int]] = []

    def model(tokens: mx.array) -> mx.array:
        seen.append(tokens.tolist()[0])
        return mx.eye(4)[tokens]  # the last token again and again

    prompt = [3, *[0, 1] * 31, 2]
    assert drawn(model, prompt, 100) == [2] * 100
    assert seen[0] == prompt
    assert seen[-1] == [*prompt, *[2] * 99][-128:]
    assert drawn(lambda tokens: mx.eye(4)[(tokens + 1) % 4], [3], 9) == [0, 1, 2, 3], "a document ends"


def test_a_text_is_continued_from_its_tokens_and_a_failure_is_said(bench):
    assert bench.sample("xyz!", COPIES) == "!!!!!"
    with pytest.raises(MachineError, match="crashed while it continued the text: ValueError: no logits"):
        bench.sample("x", with_model("raise ValueError('no logits')"))


def test_control_characters_do_not_reach_the_terminal(bench):
    tokens = [*b"\x1b[2J\r", 60000, 511, *"é\n\t".encode(), 0xC3, *b"more than was asked for"]
    writes = f"Path('tokens.u16').write_bytes(b''.join(t.to_bytes(2, 'little') for t in {tokens})); os._exit(0)"
    most = tokens.index(0xC3, tokens.index(ord("\t"))) + 1
    assert bench.sample("x", with_model(writes), tokens=most) == "\\x1b[2J\\ré\n\t\ufffd"


def test_a_link_in_the_place_of_the_tokens_is_not_followed(bench, tmp_path):
    (tmp_path / "secret").write_text("secret")
    assert bench.sample("x", with_model(f"os.symlink({str(tmp_path / 'secret')!r}, 'tokens.u16'); os._exit(0)")) == ""


def test_the_script_sees_neither_the_repository_nor_the_network(bench):
    usable(bubblewrap())
    secret = str(bench.folder.parents[2] / "secret")
    Path(secret).write_text("secret")
    probes = f"""import socket
        try:
            free = Path({secret!r}).exists() or socket.create_connection(("192.0.2.1", 9), 1)
        except OSError:
            free = False
        return 100 * mx.eye(table.size)[mx.full(tokens.shape, ord("y" if free else "n"))]"""
    assert bench.sample("x", with_model(probes)) == "yyyyy"
    options = Options(sandbox="require")
    bench = dataclasses.replace(bench, night=dataclasses.replace(bench.night, options=options))
    assert bench.sample("x", with_model(probes)) == "nnnnn"
