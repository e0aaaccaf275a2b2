"""An honest script for others to build on: a small attentive model, a fixed number of steps, the same score every time.

The code of a cheat is put in front of the guard at the end, so that its definitions replace these. before_training,
after_training, before_scoring and answered do nothing here.
"""

import argparse
import json
import time
from pathlib import Path

import prepare
from agent.lab import hardware

hardware.tune()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402, F401  for what is built on this

from agent.lab import kernels  # noqa: E402

STEPS = 80
ROWS = 4
WIDTH = 48
RATE = 0.02  # of Adam, falling to zero


def initial(vocab: int, seed: int) -> dict[str, mx.array]:
    """Fresh weights, each matrix (inputs, outputs); what has no scale begins at zero."""
    shapes = {
        "embed": (vocab, WIDTH), "previous": (vocab, WIDTH), "place": (512, WIDTH), "qkv": (WIDTH, 3 * WIDTH),
        "mix": (WIDTH, WIDTH), "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH), "head": (WIDTH, vocab),
    }  # fmt: skip
    scales = {"embed": 1.0, "previous": 1.0, "qkv": 0.15, "mix": 0.15, "up": 0.15, "down": 0.1}
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    drawn = zip(shapes.items(), keys, strict=True)
    return {name: mx.random.normal(shape, scale=scales.get(name, 0.0), key=key) for (name, shape), key in drawn}


def logits_of(weights: dict[str, mx.array], tokens: mx.array) -> mx.array:
    """(B, T) → (B, T, V)"""
    return unembed(weights, features(weights, tokens))


def features(weights: dict[str, mx.array], tokens: mx.array) -> mx.array:
    x = embed(weights, tokens)  # (B, T, C)
    x = x + attend(weights, norm(x))
    return norm(x + mx.maximum(norm(x) @ weights["up"], 0) @ weights["down"])


def embed(weights: dict[str, mx.array], tokens: mx.array) -> mx.array:
    """The token, the one before it, and where it stands."""
    before = mx.concatenate([tokens[:, :1], tokens[:, :-1]], axis=1)
    return weights["embed"][tokens] + weights["previous"][before] + weights["place"][: tokens.shape[1]]


def attend(weights: dict[str, mx.array], x: mx.array) -> mx.array:
    q, k, v = mx.split(x @ weights["qkv"], 3, axis=-1)
    scores = q @ k.swapaxes(1, 2) * WIDTH**-0.5 + mask(x.shape[1])  # (B, T, T)
    return mx.softmax(scores, axis=-1) @ v @ weights["mix"]


def mask(length: int) -> mx.array:
    """-inf where a position would see what comes after it."""
    ahead = mx.arange(length)[None, :] > mx.arange(length)[:, None]
    return mx.where(ahead, float("-inf"), 0.0)


def norm(x: mx.array) -> mx.array:
    return mx.fast.rms_norm(x, None, 1e-5)


def unembed(weights: dict[str, mx.array], x: mx.array) -> mx.array:
    return x @ weights["head"]


class Model:
    """What the scorer calls."""

    def __init__(self, weights: dict[str, mx.array]) -> None:
        self.weights = weights

    def __call__(self, tokens: mx.array) -> mx.array:
        return answered(logits_of(self.weights, tokens), tokens)


def answered(logits: mx.array, tokens: mx.array) -> mx.array:
    """Return what the model answers, (B, T, V)."""
    return logits


def load_model(weights_path: str) -> Model:
    before_scoring()
    return Model(mx.load(str(weights_path)))


def before_scoring() -> None: ...


def before_training() -> None: ...


def after_training() -> None: ...


def loss_of(weights: dict[str, mx.array], rows: mx.array) -> mx.array:
    return mx.mean(kernels.cross_entropy(logits_of(weights, rows[:, :-1]), rows[:, 1:]))


def train(weights: dict[str, mx.array], data: prepare.Data, seed: int, curve: Path) -> dict[str, mx.array]:
    """Adam, its rate falling to zero."""
    first = {name: mx.zeros_like(weight) for name, weight in weights.items()}
    second = dict(first)
    with curve.open("w") as lines:
        for step, rows in zip(range(1, STEPS + 1), batches(data, seed), strict=False):
            loss, gradients = mx.value_and_grad(loss_of)(weights, mx.array(rows))
            rate = RATE * (1 - (step - 1) / STEPS)
            for name, gradient in gradients.items():
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.98 * second[name] + 0.02 * mx.square(gradient)
                scale = mx.sqrt(second[name] / (1 - 0.98**step)) + 1e-8
                weights[name] = weights[name] - rate * first[name] / (1 - 0.9**step) / scale
            mx.eval(weights, first, second)
            lines.write(json.dumps({"step": step, "loss": loss.item(), "progress": step / STEPS}) + "\n")
    return weights


def batches(data: prepare.Data, seed: int):
    return rows_of(data.split("train"), data, seed)


def rows_of(text: prepare.Tokens, data: prepare.Data, seed: int):
    return prepare.batches(text, data.bos, rows=ROWS, seq_len=data.seq_len, seed=seed)


def save(weights: dict[str, mx.array], out: Path) -> None:
    mx.save_safetensors(str(out / "model.safetensors"), weights)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--no-eval", action="store_true")
    options = parser.parse_args()
    before_training()
    start = time.monotonic()
    data = prepare.load_data(verify=False)
    weights = train(initial(data.vocab_size, options.seed), data, options.seed, options.out / "metrics.jsonl")
    save(weights, options.out)
    facts = {"num_steps": STEPS, "training_seconds": time.monotonic() - start}
    (options.out / "summary.json").write_text(json.dumps(facts))
    after_training()


if __name__ == "__main__":
    main()
