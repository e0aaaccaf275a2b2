"""Train a plain GPT for a fixed number of seconds: the script that the studies beside it take apart.

Each part that a study exchanges is a dial. The clock starts after five steps, so that steps per second do not hold the
compilation; what comes before it is in the seconds beyond training.
"""

import argparse
import json
import math
import sys
import time
from functools import partial
from pathlib import Path

import prepare
from agent.lab import hardware

hardware.tune()  # must come before MLX

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import mlx.optimizers as optim  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

from agent.lab.hardware import by_device  # noqa: E402

WIDTH = by_device(cpu=64, metal=256, cuda=256)  # channels  {64, 128, 256, 512}
DEPTH = by_device(cpu=2, metal=6, cuda=6)  # layers  {1, 2, 4, 6, 8}
HEAD_DIM = 32  # channels of a head
QUERIES_PER_KV = 1  # query heads that share a key-value head; 1: multi-head attention  {1, 2, 4}
NORM = "layer"  # layer: with weight and bias; rms: with a weight alone
MLP = "gelu"  # gelu: two matrices of 4 × width; swiglu: three of 8/3 × width, as many parameters
POSITIONS = "sinusoidal"  # sinusoidal: added to the embedding; rope: queries and keys are rotated
OPTIMIZER = "adamw"  # adamw, sgd, adafactor, lion, or muon, which leaves vectors and embeddings to adamw
LR = 1e-3  # the highest learning rate  [0.0001, 0.01] log
WEIGHT_DECAY = 0.1  # of adamw, lion and muon
WARMUP = 0.05  # share of the budget in which the rate rises; it falls to a tenth in the rest
COMPILE = ""  # "": nothing; step: the training step; all: the scored model as well
BATCH_ROWS = by_device(cpu=4, metal=16, cuda=32)
UNCLOCKED_STEPS = 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * (WIDTH // QUERIES_PER_KV), bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rope = nn.RoPE(HEAD_DIM) if POSITIONS == "rope" else None

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, C)
        B, T, C = x.shape
        parts = mx.split(self.qkv(x), [C, C + C // QUERIES_PER_KV], axis=-1)
        q, k, v = (part.reshape(B, T, -1, HEAD_DIM).swapaxes(1, 2) for part in parts)  # (B, H or K, T, D)
        if self.rope is not None:
            q, k = self.rope(q), self.rope(k)
        seen = mx.fast.scaled_dot_product_attention(q, k, v, scale=HEAD_DIM**-0.5, mask="causal")
        return self.out(seen.swapaxes(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        hidden = 4 * WIDTH if MLP == "gelu" else 8 * WIDTH // 3
        self.up = nn.Linear(WIDTH, hidden, bias=False)
        self.gate = nn.Linear(WIDTH, hidden, bias=False) if MLP == "swiglu" else None
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down(nn.gelu(self.up(x)) if self.gate is None else nn.silu(self.gate(x)) * self.up(x))


def norm() -> nn.Module:
    return nn.LayerNorm(WIDTH) if NORM == "layer" else nn.RMSNorm(WIDTH)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp, self.before_attention, self.before_mlp = Attention(), Mlp(), norm(), norm()

    def __call__(self, x: mx.array) -> mx.array:
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(vocab_size, WIDTH), norm()
        self.blocks, self.output = [Block() for _ in range(DEPTH)], nn.Linear(WIDTH, vocab_size, bias=False)

    def __call__(self, tokens: mx.array) -> mx.array:  # (B, T) → (B, T, V)
        x = self.embedding(tokens)
        if POSITIONS == "sinusoidal":
            x = x + sinusoids(tokens.shape[1])
        for block in self.blocks:
            x = block(x)
        return self.output(self.last(x))


def sinusoids(length: int) -> mx.array:
    """(T, C): sines and cosines of each position, as large as an embedding's channels at the start"""
    rates = mx.exp(-math.log(10_000.0) * mx.arange(0, WIDTH, 2) / WIDTH)
    angles = mx.arange(length)[:, None] * rates
    return mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1) * WIDTH**-0.5


def load_model(weights_path: str):
    weights = mx.load(str(weights_path))
    model = GPT(weights["embedding.weight"].shape[0])
    model.load_weights(list(weights.items()))
    if COMPILE != "all":
        return model
    return mx.compile(lambda tokens: model(tokens))


def optimizer() -> optim.Optimizer:
    adamw = optim.AdamW(LR, betas=[0.9, 0.95], weight_decay=WEIGHT_DECAY)
    match OPTIMIZER:
        case "adamw":
            return adamw
        case "sgd":
            return optim.SGD(LR, momentum=0.9)
        case "adafactor":
            return optim.Adafactor(LR, scale_parameter=False, relative_step=False)
        case "lion":
            return optim.Lion(LR, weight_decay=WEIGHT_DECAY)
        case "muon":
            is_matrix = lambda path, weight: weight.ndim == 2 and path.startswith("blocks.")  # noqa: E731
            return optim.MultiOptimizer([optim.Muon(LR, weight_decay=WEIGHT_DECAY), adamw], [is_matrix])
    raise SystemExit(f"OPTIMIZER is {OPTIMIZER!r}: write adamw, sgd, adafactor, lion or muon")


def set_rate(used: optim.Optimizer, progress: float) -> None:
    share = min(1.0, progress / WARMUP) if progress < WARMUP else 1 - 0.9 * (progress - WARMUP) / (1 - WARMUP)
    for each in getattr(used, "optimizers", [used]):
        each.learning_rate = LR * max(share, 0.02)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--no-eval", action="store_true")
    parser.add_argument("--max-steps", type=int)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    data = prepare.ensure_data()
    mx.random.seed(args.seed)
    model, used = GPT(data.vocab_size), optimizer()
    used.init(model.trainable_parameters())
    state = [model.state, used.state]

    def loss_of(rows: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(rows[:, :-1]), rows[:, 1:], reduction="mean")

    def step(rows: mx.array) -> mx.array:
        loss, gradients = nn.value_and_grad(model, loss_of)(rows)
        used.update(model, gradients)
        return loss

    if COMPILE:
        step = partial(mx.compile, inputs=state, outputs=state)(step)
    batches = prepare.batches(data.split("train"), data.bos, rows=BATCH_ROWS, seq_len=data.seq_len, seed=args.seed)
    steps, progress, start = 0, 0.0, time.perf_counter()
    with (args.out / "metrics.jsonl").open("w") as curve:
        while progress < 1:
            set_rate(used, progress)
            loss = step(mx.array(next(batches)))
            mx.eval(loss, state)
            steps += 1
            if not math.isfinite(loss.item()):
                print(f"the loss became {loss.item()} at step {steps}: lower LR", file=sys.stderr)
                return 3
            if steps == UNCLOCKED_STEPS:
                start = time.perf_counter()
            elapsed_s = time.perf_counter() - start if steps > UNCLOCKED_STEPS else 0.0
            progress = min(1.0, elapsed_s / args.budget_s)
            if args.max_steps and steps >= args.max_steps:
                progress = 1.0
            point = {"step": steps, "t_s": elapsed_s, "progress": progress, "loss": loss.item()}
            curve.write(json.dumps(point) + "\n")
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(args.out / "model.safetensors"), weights)
    summary = {
        "val_bpb": None if args.no_eval else prepare.evaluate_bpb(load_model(args.out / "model.safetensors"), data),
        "training_seconds": max(elapsed_s, 1e-6),
        "total_seconds": time.perf_counter() - began,
        "peak_vram_mb": mx.get_peak_memory() / 2**20,
        "num_steps": max(1, steps - UNCLOCKED_STEPS),
        "num_params_M": sum(weight.size for weight in weights.values()) / 1e6,
        "total_tokens_M": steps * BATCH_ROWS * data.seq_len / 1e6,
        "depth": DEPTH,
    }
    (args.out / "summary.json").write_text(json.dumps(summary))
    print("---", *(f"{key}: {value}" for key, value in summary.items() if value is not None), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
