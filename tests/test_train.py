"""The training script's model, optimizer and step keep their promises."""

import itertools
from collections.abc import Iterable, Iterator

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

import train_mlx
from train_mlx import GPT, GPTConfig, MuonAdamW, make_step, orthogonalize, schedule

V, T = 50, 32


def tiny_config(**changes) -> GPTConfig:
    sizes = {"vocab_size": V, "seq_len": T, "depth": 2, "width": 32, "heads": 4, "kv_heads": 4, "windows": (T // 2, T)}
    return GPTConfig(**{**sizes, "mlp_ratio": 4, "softcap": 15.0, "rope_base": 10000.0, **changes})


def tiny_model(seed: int = 0, **changes) -> GPT:
    """Make a model without zero weights, so that every path through it carries signal."""
    mx.random.seed(seed)
    model = GPT(tiny_config(**changes))
    weights = tree_flatten(model.trainable_parameters())
    model.load_weights([(name, w + 0.05 * mx.random.normal(w.shape)) for name, w in weights])
    return model


def random_tokens(rows: int, length: int = T, seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).integers(0, V, (rows, length), dtype=np.int32))


# --- the model ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dial", "value", "words"),
    [
        ("WINDOW_PATTERN", "SX", "write a letter a layer, S or L"),
        ("BATCH_ROWS", 0, "above zero"),
        ("ENGRAM_ROWS", 0, "above zero"),
        ("ENGRAM_LAYERS", "1,3", "write a digit a layer, 0 for the first"),
        ("ENGRAM_ORDERS", "223", "write as many digits above 0 as divide the width"),
        ("ENGRAM_ORDERS", "2x", "write as many digits above 0"),
        ("ENGRAM_ORDERS", "", "write as many digits above 0"),
    ],
)
def test_dials_without_meaning_are_refused(monkeypatch, dial, value, words):
    monkeypatch.setattr(train_mlx, "ENGRAM_LAYERS", "1")
    monkeypatch.setattr(train_mlx, dial, value)
    with pytest.raises(train_mlx.Refused, match=words):
        train_mlx.config_from_dials(vocab_size=V, seq_len=64, is_text_long=True)


@pytest.mark.parametrize(
    ("budget_s", "cores", "rows", "width"),
    [(10, 2, 2, 64), (29, 2, 2, 64), (30, 2, 4, 128), (300, 1, 4, 128), (10, 8, 4, 128)],
)
def test_a_short_run_on_a_cpu_has_half_the_rows_and_half_the_width(monkeypatch, budget_s, cores, rows, width):
    for name in ("BATCH_ROWS", "ASPECT_RATIO"):
        monkeypatch.setattr(train_mlx, name, getattr(train_mlx, name))  # restored after the test
    monkeypatch.setattr(train_mlx.hardware, "usable_cores", lambda: cores)
    train_mlx.fit_into_budget(budget_s)
    config = train_mlx.config_from_dials(vocab_size=V, seq_len=64)
    assert (train_mlx.BATCH_ROWS, config.width) == (rows, width)


def test_layers_beyond_the_depth_look_no_n_grams_up_and_a_digit_is_no_part_of_another_number(monkeypatch):
    for name, value in {"DEPTH": 12, "ASPECT_RATIO": 2, "HEAD_DIM": 8, "ENGRAM_LAYERS": "10", "ENGRAM_ROWS": 8}.items():
        monkeypatch.setattr(train_mlx, name, value)
    config = train_mlx.config_from_dials(vocab_size=V, seq_len=64, is_text_long=True)
    assert [layer for layer, block in enumerate(GPT(config).blocks) if block.engram] == [0, 1]
    monkeypatch.setattr(train_mlx, "DEPTH", 1)
    assert train_mlx.config_from_dials(vocab_size=V, seq_len=64, is_text_long=True).engram_layers == (0,)


def test_a_model_with_n_grams_is_loaded_where_the_table_of_a_new_one_would_be_of_another_size(monkeypatch, tmp_path):
    model = tiny_model(engram_layers=(1,), engram_rows=64)
    train_mlx.save_model(model, tmp_path / "model.safetensors")
    monkeypatch.setattr(train_mlx, "ENGRAM_ROWS", 32)  # a Mac's value
    loaded = train_mlx.load_model(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert mx.array_equal(loaded(random_tokens(2)), model(random_tokens(2)))


def test_n_grams_are_hidden_from_half_of_the_positions_in_training_and_from_none_that_is_scored(monkeypatch):
    model, tokens = tiny_model(engram_layers=(1,), engram_rows=64), random_tokens(8)
    model.engram_embedding = mx.random.normal(model.engram_embedding.shape)
    hidden = mx.all(model.ngrams(tokens, mx.random.key(1)) == 0, axis=-1)  # (B, T)
    assert 0.4 < mx.mean(hidden).item() < 0.6
    assert not mx.array_equal(hidden, mx.all(model.ngrams(tokens, mx.random.key(2)) == 0, axis=-1))

    def scored(tokens, targets):
        return nn.losses.cross_entropy(model(tokens), targets)

    targets = random_tokens(8, seed=1)
    assert not mx.allclose(model.losses(tokens, targets), scored(tokens, targets))
    monkeypatch.setattr(train_mlx, "ENGRAM_HIDDEN", 0.0)
    assert mx.allclose(model.losses(tokens, targets), scored(tokens, targets), atol=1e-4)


# --- the optimizer ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 32, 96)])
def test_newton_schulz_brings_singular_values_near_one(shape):
    rng = np.random.default_rng(0)
    left, _, right = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    spread = np.geomspace(1, 1e-2, min(shape[1:]))
    flattened = np.array(orthogonalize(mx.array(((left * spread) @ right).astype(np.float32))))
    kept = np.diagonal(left.swapaxes(1, 2) @ flattened @ right.swapaxes(1, 2), axis1=1, axis2=2)  # same directions
    assert kept.min() > 0.7
    assert kept.max() < 1.3


def test_the_learning_rate_rises_stays_and_falls(monkeypatch):
    monkeypatch.setattr(train_mlx, "WARMUP_FRACTION", 0.1)
    monkeypatch.setattr(train_mlx, "WARMDOWN_FRACTION", 0.5)
    monkeypatch.setattr(train_mlx, "FINAL_LR_FRACTION", 0.2)
    lr = [schedule(0, progress).lr.item() for progress in (0.0, 0.05, 0.1, 0.5, 0.75, 1.0)]
    np.testing.assert_allclose(lr, [0.0, 0.5, 1.0, 1.0, 0.6, 0.2], atol=1e-6)


# --- the step -----------------------------------------------------------------------------------


def trained(batches: Iterable[mx.array], steps: int = 1) -> Iterator[dict[str, mx.array]]:
    """Yield the parameters after each step."""
    model = tiny_model()
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = MuonAdamW(params, model.config.width)
    state, step, batches = optimizer.init(params), make_step(model, optimizer), iter(batches)
    for number in range(steps):
        params, state, _ = step(params, state, batches, schedule(number, 0.0))
        yield params


def test_two_micro_steps_equal_one_batch_of_both(monkeypatch):
    whole = random_tokens(8, T + 1)
    (at_once,) = trained([whole])
    monkeypatch.setattr(train_mlx, "MICRO_STEPS", 2)
    (in_turn,) = trained([whole[:4], whole[4:]])
    for name, parameter in at_once.items():
        np.testing.assert_allclose(parameter, in_turn[name], atol=2e-3, err_msg=name)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_steps():
    batches = itertools.repeat(random_tokens(4, T + 1))
    live_bytes = [mx.get_active_memory() for _ in trained(batches, 60)]
    # MLX counts a reused buffer whole, and it may be larger than was asked for: a few per cent come and go
    assert max(live_bytes[40:]) <= 1.1 * max(live_bytes[:20])
