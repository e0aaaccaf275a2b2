"""train_mlx.py's model and optimizer in PyTorch on a CPU, written to be a strong and honest opponent in train_speed.py.

    python benchmarks/torch_twin.py --config JSON --steps 50 --out DIR [--dtype bfloat16] [--compile]

Same shapes, parameter names, initial distributions, dials, batches and schedule; the same files in DIR. Weights are
float32, activations float32 or bfloat16. Where PyTorch has a faster way to the same numbers it is taken: one projection
for q, k, v and gates, attention within windows by blocks of queries, torch.compile for the loss with its gradients and
for the optimizer. --config has the dials by their names in lower case and the model's sizes, from train_speed.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import measure

try:
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch import Tensor, nn
except ModuleNotFoundError:
    measure.say("torch_twin: this interpreter has no PyTorch: run it with one that has")
    sys.exit(2)

import prepare

# ---- the model -------------------------------------------------------------------------------------------------------


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention within a window, in blocks of queries, each against the keys it may see.

    q, k, v: (B, H, T, D) → (B, H, T, D)
    """
    T = q.shape[2]
    block = T if window >= T else (window + 1) // 2
    pieces = []
    for start in range(0, T, block):
        stop, first = min(start + block, T), max(0, min(start + block, T) - window)
        L, S = stop - start, stop - first
        seen = torch.ones(L, S, dtype=torch.bool).tril(S - L)  # the last query sees the last key
        mask = {"is_causal": True} if L == S else {"attn_mask": seen}
        pieces.append(
            F.scaled_dot_product_attention(q[:, :, start:stop], k[:, :, first:stop], v[:, :, first:stop], **mask)
        )
    return torch.cat(pieces, dim=2)


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), eps=1e-6)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


def matrix(rows: int, columns: int) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


class Attention(nn.Module):
    def __init__(self, dials: SimpleNamespace, layer: int, vocab_size: int):
        super().__init__()
        C, D = dials.width, dials.width // dials.heads
        self.heads, self.kv_heads, self.head_dim, self.window = dials.heads, dials.kv_heads, D, dials.windows[layer]
        self.c_q, self.c_k, self.c_v = (matrix(h * D, C) for h in (dials.heads, dials.kv_heads, dials.kv_heads))
        self.c_proj = matrix(C, dials.heads * D)
        self.has_value_embedding = layer % 2 == (dials.depth - 1) % 2
        if self.has_value_embedding:
            self.value_embedding = nn.Embedding(vocab_size, dials.kv_heads * D)
            self.gate = matrix(dials.kv_heads, min(dials.gate_channels, C))

    def forward(self, x: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, C = x.shape
        H, K, D = self.heads, self.kv_heads, self.head_dim
        weights = [self.c_q.weight, self.c_k.weight, self.c_v.weight]
        if self.has_value_embedding:  # the gates are rows of the same product, with zeros where they do not read
            gate = self.gate.weight
            weights.append(F.pad(gate, (0, C - gate.shape[1], 0, -K % 8)))
        projected = linear(x, torch.cat(weights))  # (B, T, (H + 2K) · D [+ K, padded])
        q, k, v = (z.unflatten(-1, (-1, D)) for z in projected[..., : (H + 2 * K) * D].split([H * D, K * D, K * D], -1))
        if self.has_value_embedding:
            at = (H + 2 * K) * D
            gates = 2 * torch.sigmoid(projected[..., at : at + K])  # (B, T, K)
            v = v + gates[..., None] * self.value_embedding(tokens).to(x.dtype).view(B, T, K, D)
        q, k = rotate(norm(q), cos, sin), rotate(norm(k), cos, sin)
        if K < H:
            k, v = (z.repeat_interleave(H // K, dim=2) for z in (k, v))
        y = windowed(*(z.transpose(1, 2) for z in (q, k, v)), self.window)  # (B, H, T, D)
        return linear(y.transpose(1, 2).reshape(B, T, H * D), self.c_proj.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (B, T, H, D); cos, sin: (T, 1, D/2) float32"""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, dials: SimpleNamespace):
        super().__init__()
        self.c_fc = matrix(dials.mlp_ratio * dials.width, dials.width)
        self.c_proj = matrix(dials.width, dials.mlp_ratio * dials.width)

    def forward(self, x: Tensor) -> Tensor:
        return linear(F.relu(linear(x, self.c_fc.weight)).square(), self.c_proj.weight)


class Block(nn.Module):
    def __init__(self, dials: SimpleNamespace, layer: int, vocab_size: int):
        super().__init__()
        self.attn = Attention(dials, layer, vocab_size)
        self.mlp = MLP(dials)

    def forward(self, x: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(norm(x), tokens, cos, sin)
        return x + self.mlp(norm(x))


BITS_32 = 2**32 - 1


def mixed(h: Tensor) -> Tensor:
    h = (h ^ (h >> 16)) * 0x85EBCA6B & BITS_32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & BITS_32
    return h ^ (h >> 16)


def last_seen(tokens: Tensor, order: int) -> Tensor:
    """The latest earlier position where the same `order` tokens ended, else -1, by the hashes of agent/lab/kernels"""
    T = tokens.shape[1]
    padded = F.pad((tokens + 1) * 0x9E3779B1 & BITS_32, (order - 1, 0))
    h = torch.full_like(tokens, order * 0x9E3779B1 & BITS_32)
    for first in range(order):
        h = mixed(h + padded[:, first : first + T] & BITS_32)
    bits = max(1, (T - 1).bit_length())
    keys = torch.sort((h << bits & BITS_32) | torch.arange(T, device=tokens.device), dim=1).values
    position, ngram = keys & (2**bits - 1), keys >> bits
    before = torch.where(ngram[:, 1:] == ngram[:, :-1], position[:, :-1], -1)
    return torch.full_like(tokens, -1).scatter(1, position[:, 1:], before)


class GPT(nn.Module):
    def __init__(self, dials: SimpleNamespace, vocab_size: int, seq_len: int, dtype: str = "float32"):
        super().__init__()
        self.dials, self.dtype = dials, getattr(torch, dtype)
        self.vocab_size = vocab_size
        self.token_embedding = nn.Embedding(vocab_size, dials.width)
        followers = len(dials.induction_orders) * vocab_size + 1
        self.induction_embedding = nn.Parameter(torch.empty(followers, dials.width))
        self.blocks = nn.ModuleList(Block(dials, layer, vocab_size) for layer in range(dials.depth))
        self.lm_head = matrix(vocab_size, dials.width)
        self.resid_lambdas = nn.Parameter(torch.ones(dials.depth))
        self.x0_lambdas = nn.Parameter(torch.full((dials.depth,), 0.1))
        half = dials.width // dials.heads // 2
        turns = torch.outer(torch.arange(seq_len), dials.rope_base ** (-torch.arange(half) / half))  # (T, D/2)
        self.register_buffer("cos", turns.cos()[:, None], persistent=False)
        self.register_buffer("sin", turns.sin()[:, None], persistent=False)
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        bound = (3 / self.dials.width) ** 0.5
        for name, weight in self.named_parameters():
            if name == "token_embedding.weight":
                weight.normal_()
            elif name == "lm_head.weight":
                weight.normal_(std=0.001)
            elif name.endswith(("c_proj.weight", "gate.weight", "induction_embedding")):
                weight.zero_()
            elif weight.ndim == 2:
                weight.uniform_(-bound, bound)

    def followers(self, tokens: Tensor) -> Tensor:
        """The row of each position's longest match: the token that followed there, in the share of that length"""
        tokens = tokens.long()
        ids = torch.full_like(tokens, len(self.dials.induction_orders) * self.vocab_size)
        for level, order in enumerate(map(int, self.dials.induction_orders)):
            place = last_seen(tokens, order)
            token = tokens.gather(1, (place + 1).clamp_min(0))
            ids = torch.where(place >= 0, level * self.vocab_size + token, ids)
        return ids

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (B, T) → logits: (B, T, V) float32, within ±softcap"""
        T = tokens.shape[1]
        cos, sin = self.cos[:T], self.sin[:T]
        x = norm(self.token_embedding(tokens).to(self.dtype))
        x0 = x = x + F.embedding(self.followers(tokens), self.induction_embedding).to(self.dtype)
        keep, again = self.resid_lambdas.to(self.dtype), self.x0_lambdas.to(self.dtype)
        for i, block in enumerate(self.blocks):
            x = block(keep[i] * x + again[i] * x0, tokens, cos, sin)
        logits = linear(norm(x), self.lm_head.weight).float()
        return self.dials.softcap * torch.tanh(logits / self.dials.softcap)

    def loss(self, rows: Tensor) -> Tensor:
        """rows: (B, T + 1) int32 → the mean over all targets"""
        rows = rows.long()
        return F.cross_entropy(self(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


# ---- the optimizer ---------------------------------------------------------------------------------------------------

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def orthogonalize(G: Tensor) -> Tensor:
    """G: (N, rows, columns) float32"""
    X = G / (torch.linalg.vector_norm(G, dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)
    tall = G.shape[-2] > G.shape[-1]
    if tall:
        X = X.mT
    for a, b, c in POLAR_EXPRESS:
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT if tall else X


def adamw_step(params, grads, ms, vs, rates, now: Tensor, beta2: float) -> None:
    """All parameters at once; rates holds a learning rate and a beta1 for each. now: schedule()'s four numbers."""
    step, scale, _, _ = now.unbind()
    for p, grad, m, v, (lr, beta1) in zip(params, grads, ms, vs, rates, strict=True):
        m.mul_(beta1).add_(grad, alpha=1 - beta1)
        v.mul_(beta2).add_(grad.square(), alpha=1 - beta2)
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        p.sub_(lr * scale * m_hat / (v_hat.sqrt() + (1e-6 if p.ndim < 2 else 1e-10)))


def muon_step(params, grads, momentum: Tensor, variance: Tensor, now: Tensor, matrix_lr: float) -> None:
    """All matrices of one shape. momentum: (N, rows, columns), variance with its short side reduced to 1"""
    _, scale, beta, weight_decay = now.unbind()
    p, grad = torch.stack(params), torch.stack(grads)
    rows, columns = p.shape[-2:]
    momentum.copy_(beta * momentum + (1 - beta) * grad)
    update = orthogonalize((1 - beta) * grad + beta * momentum)
    mean_square = update.square().mean(dim=-1 if rows >= columns else -2, keepdim=True)
    variance.mul_(0.95).add_(mean_square, alpha=0.05)
    evened = variance.clamp_min(1e-10).rsqrt()
    before = mean_square.sum(dim=(-2, -1), keepdim=True).sqrt()
    after = (mean_square * evened.square()).sum(dim=(-2, -1), keepdim=True).sqrt()
    update = update * (evened * before / after.clamp_min(1e-10))
    decay = weight_decay * p * (update * p >= 0)
    stepped = p - matrix_lr * max(1, rows / columns) ** 0.5 * scale * (update + decay)
    for old, new in zip(params, stepped.unbind(), strict=True):
        old.copy_(new)


class MuonAdamW:
    def __init__(self, model: GPT, *, compiled: bool):
        self.dials, by_width = model.dials, (model.dials.width / 768) ** -0.5
        self.adam: list[tuple[Tensor, tuple[float, float]]] = []  # parameter, (learning rate, beta1)
        self.muon: dict[tuple[int, ...], list[Tensor]] = {}
        for name, p in model.named_parameters():
            if "embedding" in name:
                lr = self.dials.induction_lr if name == "induction_embedding" else self.dials.embedding_lr
                self.adam.append((p, (lr * by_width, self.dials.adam_beta1)))
            elif name == "lm_head.weight":
                self.adam.append((p, (self.dials.unembedding_lr * by_width, self.dials.adam_beta1)))
            elif name == "resid_lambdas":
                self.adam.append((p, (self.dials.scalar_lr * 0.01, self.dials.adam_beta1)))
            elif p.ndim < 2:
                self.adam.append((p, (self.dials.scalar_lr, 0.96)))
            else:
                self.muon.setdefault(tuple(p.shape), []).append(p)
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p, _ in self.adam]
        self.stacks = {shape: self.stack_state(shape, names) for shape, names in self.muon.items()}
        compiler = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.adamw_step, self.muon_step = compiler(adamw_step), compiler(muon_step)

    @staticmethod
    def stack_state(shape: tuple[int, ...], params: list[Tensor]) -> tuple[Tensor, Tensor]:
        rows, columns = shape
        reduced = (len(params), rows, 1) if rows >= columns else (len(params), 1, columns)
        like = {"device": params[0].device, "dtype": params[0].dtype}
        return torch.zeros(len(params), rows, columns, **like), torch.zeros(reduced, **like)

    @torch.no_grad()
    def update(self, now: Tensor) -> None:
        params, rates = [p for p, _ in self.adam], [rate for _, rate in self.adam]
        ms, vs = [m for m, _ in self.moments], [v for _, v in self.moments]
        self.adamw_step(params, [p.grad for p in params], ms, vs, rates, now, self.dials.adam_beta2)
        for shape, matrices in self.muon.items():
            self.muon_step(matrices, [p.grad for p in matrices], *self.stacks[shape], now, self.dials.matrix_lr)

    @torch.no_grad()
    def forget(self) -> None:
        for state in itertools.chain(itertools.chain(*self.moments), itertools.chain(*self.stacks.values())):
            state.zero_()


def schedule(dials: SimpleNamespace, step: int, progress: float) -> list[float]:
    """Step counted from 1, the factor of every learning rate, Muon's momentum and its weight decay."""
    rise = progress / dials.warmup_fraction if progress < dials.warmup_fraction else 1.0
    fall = min(1.0, (1 - progress) / dials.warmdown_fraction) if dials.warmdown_fraction else 1.0
    ramp = min(step / 300, 1)
    return [
        float(step + 1),
        min(rise, fall + (1 - fall) * dials.final_lr_fraction),
        0.85 + (dials.muon_momentum - 0.85) * ramp,
        dials.weight_decay * (1 - progress),
    ]


# ---- training --------------------------------------------------------------------------------------------------------


class Trainer:
    """The model, its optimizer, and one step of both."""

    def __init__(self, model: GPT, *, compiled: bool):
        self.model, self.dials = model, model.dials
        self.optimizer = MuonAdamW(model, compiled=compiled)
        self.loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss

    def step(self, batches: Iterator[Tensor], steps: int, progress: float) -> float:
        losses = []
        for _ in range(self.dials.micro_steps):
            loss = self.loss_of(next(batches)) / self.dials.micro_steps
            loss.backward()
            losses.append(loss.detach())
        self.optimizer.update(torch.tensor(schedule(self.dials, steps, progress), dtype=torch.float32))
        self.model.zero_grad(set_to_none=True)
        return float(torch.stack(losses).sum())

    def warm_up(self, batch: Tensor) -> None:
        """Make a step that compiles everything and trains nothing, as train_mlx.py does."""
        before = [p.detach().clone() for p in self.model.parameters()]
        self.step(itertools.repeat(batch), 0, 0.0)
        with torch.no_grad():
            for p, old in zip(self.model.parameters(), before, strict=True):
                p.copy_(old)
        self.optimizer.forget()


def train(trainer: Trainer, data: prepare.Data, steps: int, out: Path) -> None:
    """Train for so many steps, each a line of metrics.jsonl and on the screen."""
    rows = trainer.dials.batch_rows
    arrays = prepare.batches(data.split("train"), data.bos, rows=rows, seq_len=data.seq_len, seed=0)
    batches = (torch.from_numpy(array) for array in arrays)
    first = next(batches)
    trainer.warm_up(first)
    batches, tokens = itertools.chain([first], batches), rows * data.seq_len * trainer.dials.micro_steps
    start, smooth_loss = time.perf_counter(), None
    elapsed_s = 0.0
    with (out / "metrics.jsonl").open("w") as metrics:
        for step in range(steps):
            loss = trainer.step(batches, step, step / steps)
            if not math.isfinite(loss):
                raise measure.Failed(f"the loss became {loss} at step {step}: lower a learning rate")
            smooth_loss = loss if smooth_loss is None else 0.9 * smooth_loss + 0.1 * loss
            now_s = time.perf_counter() - start
            row = {"step": step + 1, "t_s": now_s, "loss": smooth_loss, "tokens_s": tokens / (now_s - elapsed_s)}
            elapsed_s = now_s
            metrics.write(json.dumps(row) + "\n")
            print(f"step {step + 1:5d}  loss {smooth_loss:.4f}  {row['tokens_s']:9,.0f} tokens/s", flush=True)
    (out / "summary.json").write_text(json.dumps({"num_steps": steps}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=json.loads, metavar="JSON", help="the dials")
    parser.add_argument("--steps", type=measure.count, required=True, metavar="N")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for summary.json and metrics.jsonl")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of activations")
    parser.add_argument("--compile", action="store_true", help="torch.compile for loss and optimizer")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = prepare.ensure_data()
    torch.manual_seed(0)
    trainer = Trainer(
        GPT(SimpleNamespace(**args.config), data.vocab_size, data.seq_len, args.dtype), compiled=args.compile
    )
    train(trainer, data, args.steps, args.out)


if __name__ == "__main__":
    main()
