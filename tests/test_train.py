"""The training script's model, optimizer and step keep their promises."""

import mlx.core as mx
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


def parameters(model: GPT) -> dict[str, mx.array]:
    return dict(tree_flatten(model.trainable_parameters()))


# --- the model ----------------------------------------------------------------------------------


def test_logits_have_the_promised_shape_are_finite_and_stay_within_the_softcap():
    logits = tiny_model()(random_tokens(3))
    assert logits.shape == (3, T, V)
    assert logits.dtype == mx.float32
    assert mx.all(mx.isfinite(logits)).item()
    assert mx.max(mx.abs(logits)).item() <= 15.0


@pytest.mark.parametrize("windows", [(T // 2, T), (6, T)])
@pytest.mark.parametrize("position", [1, T // 2, T - 1])
def test_no_logit_moves_when_a_later_token_or_another_row_changes(windows, position):
    model, tokens = tiny_model(windows=windows), random_tokens(2)
    changed = mx.array(tokens)
    changed[0, position:] = (changed[0, position:] + 1) % V
    before, after = model(tokens), model(changed)
    assert mx.array_equal(before[0, :position], after[0, :position]).item()
    assert mx.array_equal(before[1], after[1]).item()
    assert not mx.allclose(before[0, position], after[0, position]).item()


def test_each_position_learns_which_token_followed_its_longest_match_and_how_long_that_was():
    tokens = mx.array([[1, 2, 3, 1, 2, 4, 4]])
    none = len(train_mlx.INDUCTION_ORDERS) * V
    expected = [none, none, none, 2, V + 3, none, 4]  # 1 was followed by 2; 1 2, of two tokens, by 3; 4 by 4
    assert tiny_model().followers(tokens).tolist() == [expected]


@pytest.mark.parametrize(("pattern", "letters"), [("SL", "SLSL"), ("S", "SSSL")])
def test_the_last_layer_always_sees_everything(monkeypatch, pattern, letters):
    monkeypatch.setattr(train_mlx, "DEPTH", 4)
    monkeypatch.setattr(train_mlx, "WINDOW_PATTERN", pattern)
    windows = train_mlx.config_from_dials(vocab_size=V, seq_len=64).windows
    assert windows == tuple({"S": 32, "L": 64}[letter] for letter in letters)


@pytest.mark.parametrize(
    ("dial", "words"),
    [
        ({"WINDOW_PATTERN": "SX"}, "write a letter a layer, S or L"),
        ({"HEAD_DIM": 45}, "above zero"),
        ({"BATCH_ROWS": 0}, "above zero"),
    ],
)
def test_dials_without_meaning_are_refused(monkeypatch, dial, words):
    for name, value in dial.items():
        monkeypatch.setattr(train_mlx, name, value)
    with pytest.raises(train_mlx.Refused, match=words):
        train_mlx.config_from_dials(vocab_size=V, seq_len=64)


def test_a_saved_model_comes_back_the_same(tmp_path):
    model = tiny_model()
    train_mlx.save_model(model, tmp_path / "model.safetensors")
    again = train_mlx.load_model(tmp_path / "model.safetensors")
    assert again.config == model.config
    assert mx.array_equal(again(random_tokens(2)), model(random_tokens(2))).item()


# --- the optimizer ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 32, 96)])
def test_newton_schulz_brings_singular_values_near_one(shape):
    rng = np.random.default_rng(0)
    left, _, right = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    spread = np.geomspace(1, 1e-2, min(shape[1:]))
    flattened = orthogonalize(mx.array(((left * spread) @ right).astype(np.float32)))
    values = np.linalg.svd(np.array(flattened), compute_uv=False)
    assert values.min() > 0.7
    assert values.max() < 1.3
    np.testing.assert_allclose(
        np.sign(np.diagonal(left.swapaxes(1, 2) @ np.array(flattened) @ right.swapaxes(1, 2), axis1=1, axis2=2)), 1
    )


def test_every_parameter_is_trained_by_one_optimizer():
    params = parameters(tiny_model(depth=3, windows=(T,) * 3))
    optimizer = MuonAdamW(params, width=32)
    by_muon = [name for names in optimizer.muon.values() for name in names]
    assert sorted([*optimizer.adam, *by_muon]) == sorted(params)
    assert all(name.startswith("blocks.") and "embedding" not in name for name in by_muon)


def test_the_learning_rate_rises_stays_and_falls(monkeypatch):
    monkeypatch.setattr(train_mlx, "WARMUP_FRACTION", 0.1)
    monkeypatch.setattr(train_mlx, "WARMDOWN_FRACTION", 0.5)
    monkeypatch.setattr(train_mlx, "FINAL_LR_FRACTION", 0.2)
    lr = [schedule(0, progress).lr.item() for progress in (0.0, 0.05, 0.1, 0.5, 0.75, 1.0)]
    np.testing.assert_allclose(lr, [0.0, 0.5, 1.0, 1.0, 0.6, 0.2], atol=1e-6)


# --- the step -----------------------------------------------------------------------------------


def train_steps(model: GPT, batches, steps: int) -> tuple[dict[str, mx.array], list[float]]:
    params = parameters(model)
    optimizer = MuonAdamW(params, model.config.width)
    state, losses = optimizer.init(params), []
    step = make_step(model, optimizer)
    for i in range(steps):
        params, state, loss = step(params, state, batches, schedule(i, 0.0))
        losses.append(loss.item())
    return params, losses


def same_batch(rows: int = 4, seed: int = 0):
    batch = random_tokens(rows, T + 1, seed)
    while True:
        yield batch


def test_two_micro_steps_equal_one_batch_of_both(monkeypatch):
    whole = random_tokens(8, T + 1)
    at_once, _ = train_steps(tiny_model(), iter([whole]), 1)
    monkeypatch.setattr(train_mlx, "MICRO_STEPS", 2)
    in_turn, _ = train_steps(tiny_model(), iter([whole[:4], whole[4:]]), 1)
    for name, p in at_once.items():
        np.testing.assert_allclose(p, in_turn[name], atol=2e-3, err_msg=name)


def test_memory_does_not_grow_with_the_number_of_steps(monkeypatch):
    monkeypatch.setattr(train_mlx, "MICRO_STEPS", 2)
    model = tiny_model()
    params = parameters(model)
    optimizer = MuonAdamW(params, model.config.width)
    state, step, batches = optimizer.init(params), make_step(model, optimizer), same_batch()
    live_bytes = []
    for i in range(60):
        params, state, _ = step(params, state, batches, schedule(i, 0.0))
        live_bytes.append(mx.get_active_memory())
    # MLX counts a reused buffer whole, and it may be larger than was asked for: a few per cent come and go
    assert max(live_bytes[40:]) <= 1.1 * max(live_bytes[:20])
