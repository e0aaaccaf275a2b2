"""Train a small GPT for a fixed number of seconds, then let it write text with a cache: what does the cache hold?

Multi-head attention caches the keys and values of every head. Multi-head latent attention (DeepSeek-V2, arXiv
2405.04434) caches one small vector a token, of which all heads make their keys and values, and one key for positions.
Training comes first. The time of writing is in the seconds beyond training, and the peak of memory is that of writing.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import prepare
from agent.lab import hardware

hardware.tune()  # must come before MLX

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import mlx.optimizers as optim  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402

from agent.lab.hardware import by_device  # noqa: E402

ATTENTION = "heads"  # heads: keys and values of every head are cached; latent: what they are made of
WIDTH = by_device(cpu=64, metal=256, cuda=512)  # channels  {64, 128, 256, 512}
DEPTH = by_device(cpu=2, metal=4, cuda=6)  # layers  {1, 2, 4, 6, 8}
HEAD_DIM = 32  # channels of a head
QUERIES_PER_KV = 1  # query heads that share a key-value head, of heads  {1, 2, 4}
LATENT = by_device(cpu=16, metal=64, cuda=128)  # channels that latent caches for all heads  {16, 32, 64, 128}
ROPE_DIM = by_device(cpu=16, metal=32, cuda=32)  # channels that tell positions, of latent; MLX fails on CUDA with 16
LR = 1e-3  # the highest learning rate  [0.0001, 0.01] log
BATCH_ROWS = by_device(cpu=4, metal=8, cuda=8)
WRITTEN_ROWS = by_device(cpu=8, metal=32, cuda=256)  # texts that are written side by side
WRITTEN_TOKENS = by_device(cpu=128, metal=512, cuda=1024)  # tokens of each
Cache = list[mx.array]  # of one layer: (B, K, T, D) each


def attend(q: mx.array, k: mx.array, v: mx.array, scale: float, start: int) -> mx.array:
    """(B, H, S, D) queries of the positions from start on → (B, H, S, values): each sees itself and what came before"""
    B, H, S, D = q.shape
    K, T = k.shape[1], k.shape[2]
    scores = (q.reshape(B, K, H // K, S, D) * scale) @ k[:, :, None].swapaxes(-1, -2)  # (B, K, G, S, T)
    is_seen = mx.arange(T)[None] <= start + mx.arange(S)[:, None]
    weights = mx.softmax(mx.where(is_seen, scores, -math.inf), axis=-1, precise=True)
    return (weights @ v[:, :, None]).reshape(B, H, S, -1)


def remember(cache: Cache | None, start: int, *new: mx.array) -> tuple[mx.array, ...]:
    """Write what is new, (B, K, S, D) each, into the cache from start on, and return all that is known by then."""
    if cache is None:
        return new
    for held, added in zip(cache, new, strict=True):
        held[:, :, start : start + added.shape[2]] = added
    return tuple(held[:, :, : start + new[0].shape[2]] for held in cache)


class Heads(nn.Module):
    """Attention whose keys and values are cached for every head, or for every group of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * (WIDTH // QUERIES_PER_KV), bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rope = nn.RoPE(HEAD_DIM)

    def empty_cache(self, rows: int, length: int) -> Cache:
        shape = rows, WIDTH // HEAD_DIM // QUERIES_PER_KV, length, HEAD_DIM
        return [mx.zeros(shape), mx.zeros(shape)]

    def __call__(self, x: mx.array, start: int = 0, cache: Cache | None = None) -> mx.array:  # (B, S, C)
        B, S, C = x.shape
        parts = mx.split(self.qkv(x), [C, C + C // QUERIES_PER_KV], axis=-1)
        q, k, v = (part.reshape(B, S, -1, HEAD_DIM).swapaxes(1, 2) for part in parts)  # (B, H or K, S, D)
        q, k = self.rope(q, offset=start), self.rope(k, offset=start)
        k, v = remember(cache, start, k, v)
        return self.out(attend(q, k, v, HEAD_DIM**-0.5, start).swapaxes(1, 2).reshape(B, S, C))


class Latent(nn.Module):
    """Attention to one latent vector a token: what would make keys of it is applied to the queries instead."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = WIDTH // HEAD_DIM
        self.query = nn.Linear(WIDTH, self.heads * (HEAD_DIM + ROPE_DIM), bias=False)
        self.down, self.norm = nn.Linear(WIDTH, LATENT + ROPE_DIM, bias=False), nn.RMSNorm(LATENT)
        self.up_key = mx.random.normal((self.heads, HEAD_DIM, LATENT)) * LATENT**-0.5
        self.up_value = mx.random.normal((self.heads, LATENT, HEAD_DIM)) * LATENT**-0.5
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rope = nn.RoPE(ROPE_DIM)

    def empty_cache(self, rows: int, length: int) -> Cache:
        return [mx.zeros((rows, 1, length, LATENT + ROPE_DIM))]

    def __call__(self, x: mx.array, start: int = 0, cache: Cache | None = None) -> mx.array:  # (B, S, C)
        B, S, C = x.shape
        q, q_position = mx.split(self.query(x).reshape(B, S, self.heads, -1).swapaxes(1, 2), [HEAD_DIM], axis=-1)
        latent, k_position = mx.split(self.down(x)[:, None], [LATENT], axis=-1)  # (B, 1, S, LATENT or ROPE_DIM)
        k_position = self.rope(k_position, offset=start)
        (known,) = remember(cache, start, mx.concatenate([self.norm(latent), k_position], axis=-1))
        q = mx.concatenate([q @ self.up_key, self.rope(q_position, offset=start)], axis=-1)  # as long as what is known
        seen = attend(q, known, known[..., :LATENT], (HEAD_DIM + ROPE_DIM) ** -0.5, start)  # (B, H, S, LATENT)
        return self.out((seen @ self.up_value).swapaxes(1, 2).reshape(B, S, C))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Latent() if ATTENTION == "latent" else Heads()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.before_attention, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def __call__(self, x: mx.array, start: int, cache: Cache | None) -> mx.array:
        x = x + self.attention(self.before_attention(x), start, cache)
        return x + self.down(nn.gelu(self.up(self.before_mlp(x))))


class GPT(nn.Module):
    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(vocab_size, WIDTH), nn.RMSNorm(WIDTH)
        self.blocks, self.output = [Block() for _ in range(DEPTH)], nn.Linear(WIDTH, vocab_size, bias=False)

    def __call__(self, tokens: mx.array, start: int = 0, caches: list[Cache] | None = None) -> mx.array:
        """(B, S) tokens of the positions from start on → (B, S, V)"""
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches or [None] * DEPTH, strict=True):
            x = block(x, start, cache)
        return self.output(self.last(x))


def load_model(weights_path: str) -> GPT:
    weights = mx.load(str(weights_path))
    model = GPT(weights["embedding.weight"].shape[0])
    model.load_weights(list(weights.items()))
    return model


def write(model: GPT, first: int, rows: int, length: int) -> mx.array:
    """Let a model write (rows, length) tokens after a first one, each drawn from what the model expects."""
    caches = [block.attention.empty_cache(rows, length) for block in model.blocks]
    tokens, written = mx.full((rows, 1), first), []
    for position in range(length):
        tokens = mx.random.categorical(model(tokens, position, caches)[:, -1])[:, None]
        written.append(tokens)
        mx.eval(tokens, caches)
    return mx.concatenate(written, axis=1)


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
    model, used = GPT(data.vocab_size), optim.AdamW(LR, betas=[0.9, 0.95], weight_decay=0.1)
    used.init(model.trainable_parameters())

    def loss_of(rows: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(rows[:, :-1]), rows[:, 1:], reduction="mean")

    batches = prepare.batches(data.split("train"), data.bos, rows=BATCH_ROWS, seq_len=data.seq_len, seed=args.seed)
    steps, progress, start = 0, 0.0, time.perf_counter()
    with (args.out / "metrics.jsonl").open("w") as curve:
        while progress < 1:
            used.learning_rate = LR * (1 - 0.9 * progress)
            loss, gradients = nn.value_and_grad(model, loss_of)(mx.array(next(batches)))
            used.update(model, gradients)
            mx.eval(loss, model.state, used.state)
            steps += 1
            if not math.isfinite(loss.item()):
                print(f"the loss became {loss.item()} at step {steps}: lower LR", file=sys.stderr)
                return 3
            elapsed_s = time.perf_counter() - start
            progress = min(1.0, elapsed_s / args.budget_s)
            if args.max_steps and steps >= args.max_steps:
                progress = 1.0
            point = {"step": steps, "t_s": elapsed_s, "progress": progress, "loss": loss.item()}
            curve.write(json.dumps(point) + "\n")
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(args.out / "model.safetensors"), weights)
    del used, gradients
    mx.clear_cache()
    mx.reset_peak_memory()
    writing = time.perf_counter()
    write(model, data.bos, WRITTEN_ROWS, min(WRITTEN_TOKENS, data.seq_len))
    print(f"wrote {WRITTEN_ROWS} texts in {time.perf_counter() - writing:.2f} s")
    summary = {
        "val_bpb": None if args.no_eval else prepare.evaluate_bpb(load_model(args.out / "model.safetensors"), data),
        "training_seconds": elapsed_s,
        "total_seconds": time.perf_counter() - began,
        "peak_vram_mb": mx.get_peak_memory() / 2**20,
        "num_steps": steps,
        "num_params_M": sum(weight.size for weight in weights.values()) / 1e6,
        "total_tokens_M": steps * BATCH_ROWS * data.seq_len / 1e6,
        "depth": DEPTH,
    }
    (args.out / "summary.json").write_text(json.dumps(summary))
    print("---", *(f"{key}: {value}" for key, value in summary.items() if value is not None), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
