"""Every token reaches a row of a batch, once in each epoch."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from agent.lab.packing import Tokens, pack_rows
from prepare import batches, load_data


def packed(lengths: list[int]) -> Tokens:
    """Make documents of these lengths, BOS (0) included; every token of text is a different number."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.ones(offsets[-1], np.int32)
    tokens[offsets[:-1]] = 0
    tokens[tokens > 0] = np.arange(1, int(tokens.sum()) + 1)
    return Tokens(tokens, offsets)


@pytest.mark.parametrize("seed", range(4))
def test_packing_uses_every_token_once_before_any_a_second_time(seed):
    rng = random.Random(seed)
    seq_len = rng.choice([3, 16, 64])
    tokens = packed([rng.choice([1, 2, 3, rng.randint(1, 40), rng.randint(1, 400)]) for _ in range(300)])
    total = int(tokens.tokens.max())
    uses = np.zeros(total + 1, int)
    for row in pack_rows(tokens, 0, seq_len=seq_len, seed=seed):
        np.add.at(uses, row, 1)
        if uses[row[row > 0]].max(initial=0) == 2:
            break
    before = uses - np.bincount(row, minlength=total + 1)
    assert (before[1:] == 0).sum() <= seq_len  # they are the first to be used in the next epoch


@pytest.mark.parametrize("lengths", [[5000], [1, 2] * 500, [65, 64, 66, 1]])
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


def test_a_seed_gives_its_own_batches_and_closing_them_ends_their_thread(tiny_data):
    tokens, bos = load_data(tiny_data).split("train"), load_data(tiny_data).bos

    def first(seed: int) -> np.ndarray:
        made = batches(tokens, bos, rows=4, seq_len=128, seed=seed)
        first_batches = np.stack([next(made) for _ in range(20)])
        assert any(thread.name == "batches" for thread in threading.enumerate())
        made.close()
        assert not any(thread.name == "batches" for thread in threading.enumerate())
        return first_batches

    assert first(7).shape == (20, 4, 129)
    assert np.array_equal(first(7), first(7))
    assert not np.array_equal(first(7), first(8))


def test_an_error_in_the_thread_reaches_the_training_loop():
    with pytest.raises(ValueError, match="documents without text"):
        next(batches(packed([1, 1, 1]), 0, rows=2, seq_len=16, seed=0))
