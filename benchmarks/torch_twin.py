"""train_mlx.py's model and optimizer in PyTorch, written to be a strong and honest opponent in the benchmarks.

    python benchmarks/torch_twin.py --steps 50 [--config JSON] [--depth 8 …] [--out DIR]
    python benchmarks/torch_twin.py --budget-s 300 --out DIR

Same shapes, parameter names, initial distributions, dials, batches, schedule and clock; the same files in DIR. Weights
are float32, activations bfloat16 on a GPU and float32 on a CPU, as in the original. Where PyTorch has a faster way to
the same numbers it is taken: one projection for q, k, v and gates, cuDNN or flash attention, torch.compile for
the loss with its gradients and for the optimizer, TF32 for the Newton-Schulz products, batches copied and steps queued
ahead.

Attention within windows (--attention) has two forms of the same arithmetic, and one that is not the same:
  blocks   queries in blocks of half a window, each against the keys it may see (flash attention, lower-right mask)
  squares  overlapping squares of plain causal attention, the repeated queries dropped: more arithmetic, but cuDNN
           takes it, whose kernels are faster
  causal   the windows ignored: every layer sees everything
auto times `blocks` and `squares` forward and backward at the run's own shape and takes the faster.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import measure

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

import numpy as np

try:
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch import Tensor, nn
except ModuleNotFoundError:
    measure.say("torch_twin: this interpreter has no PyTorch: run it with one that has")
    sys.exit(2)

import hardware
import prepare


@dataclass(frozen=True)
class Dials:
    """As train_mlx.py's, whose values for CUDA are the defaults."""

    depth: int = 8
    width: int = 512
    heads: int = 4
    kv_heads: int = 4
    windows: tuple[int, ...] = ()  # for each layer; when empty, every fourth and the last see all, others half a row
    mlp_ratio: int = 4
    softcap: float = 15.0
    rope_base: float = 10000.0
    gate_channels: int = 32
    induction_orders: str = "1248"
    batch_rows: int = 64
    micro_steps: int = 1
    matrix_lr: float = 0.04
    embedding_lr: float = 0.6
    induction_lr: float = 0.3
    unembedding_lr: float = 0.004
    scalar_lr: float = 0.5
    weight_decay: float = 0.2
    adam_beta1: float = 0.8
    adam_beta2: float = 0.95
    muon_momentum: float = 0.95
    warmup_fraction: float = 0.0
    warmdown_fraction: float = 0.5
    final_lr_fraction: float = 0.0
    # not dials of the original, but how the twin runs
    dtype: str = "auto"  # bfloat16 on a GPU, float32 on a CPU
    attention: str = "auto"

    def complete(self, device: str, seq_len: int) -> Dials:
        """With everything decided that is left to the device and the corpus, except which attention is faster."""
        last = self.depth - 1
        usual = tuple(seq_len if i % 4 == 3 or i == last else max(2, seq_len // 2) for i in range(self.depth))
        dtype = self.dtype if self.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
        return replace(self, windows=tuple(self.windows) or usual, dtype=dtype)

    def check(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads:
            sizes = f"width {self.width}, heads {self.heads}, kv_heads {self.kv_heads}"
            raise measure.Misuse(f"{sizes}: the heads must divide the width, and kv_heads the heads")
        if len(self.windows) != self.depth:
            raise measure.Misuse(f"{len(self.windows)} windows for {self.depth} layers: name one for each layer")


# ---- attention -------------------------------------------------------------------------------------------------------

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # q, k, v: (B, H, T, D), window → (B, H, T, D)


def causal(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def spans(T: int, window: int) -> list[tuple[int, int, int]]:
    """Blocks of queries: each one's first and last-but-one position, and the first key that it may see."""
    block = (min(window, T) + 1) // 2
    stops = [*range(block, T, block), T]
    return [(start, stop, max(0, stop - window)) for start, stop in zip([0, *stops], stops, strict=False)]


def blocks(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    T = q.shape[2]
    if window >= T:
        return causal(q, k, v, T)
    pieces = [
        lower_right(q[:, :, start:stop], k[:, :, first:stop], v[:, :, first:stop])
        for start, stop, first in spans(T, window)
    ]
    return torch.cat(pieces, dim=2)


def lower_right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention whose last query sees the last key, for fewer queries than keys."""
    L, S = q.shape[2], k.shape[2]
    if L == S:
        return causal(q, k, v, S)
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16):  # this operator's "causal" is the lower-right one
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=None)[0]
    seen = torch.ones(L, S, dtype=torch.bool, device=q.device).tril(S - L)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def squares(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    pieces = spans(q.shape[2], window)
    whole = [stop for _, stop, first in pieces if first == 0][-1]  # up to here, everybody sees everything before
    outputs = [causal(q[:, :, :whole], k[:, :, :whole], v[:, :, :whole], whole)]
    for start, stop, first in pieces:
        if first > 0:
            square = causal(q[:, :, first:stop], k[:, :, first:stop], v[:, :, first:stop], window)
            outputs.append(square[:, :, start - first :])
    return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]


ATTENTION: dict[str, Attend] = {"blocks": blocks, "squares": squares, "causal": causal}


def choose_attention(dials: Dials, seq_len: int, device: str) -> str:
    """The faster of the two forms that compute the same, at this shape."""
    window = min(dials.windows)
    if dials.attention != "auto":
        return dials.attention
    if window >= seq_len:
        return "causal"
    shape = (dials.batch_rows, seq_len, dials.heads, dials.width // dials.heads)
    qkv = [torch.randn(shape, device=device, dtype=getattr(torch, dials.dtype)) for _ in range(3)]
    qkv = [z.transpose(1, 2).requires_grad_() for z in qkv]
    seconds = {}
    for name in ("blocks", "squares"):
        try:
            seconds[name] = time_attention(ATTENTION[name], qkv, window)
        except RuntimeError as error:  # a form that this device or build cannot run is none
            print(f"attention {name} does not run here: {str(error).splitlines()[0]}", flush=True)
    if not seconds:
        raise measure.Failed("neither form of attention runs here: name one with --attention")
    print("attention, ms: " + ", ".join(f"{name} {1e3 * s:.2f}" for name, s in seconds.items()), flush=True)
    return min(seconds, key=lambda name: seconds[name])


def time_attention(attend: Attend, qkv: list[Tensor], window: int) -> float:
    """Seconds of one layer's attention, forward and backward: the best of a few."""
    out = attend(*qkv, window)
    slope = torch.randn_like(out)
    best = math.inf
    for _ in range(6):
        synchronize(qkv[0].device.type)
        tic = time.perf_counter()
        torch.autograd.grad(attend(*qkv, window), qkv, slope)
        synchronize(qkv[0].device.type)
        best = min(best, time.perf_counter() - tic)
    return best


# ---- the model -------------------------------------------------------------------------------------------------------


def norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), eps=1e-6)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


def matrix(rows: int, columns: int) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


class Attention(nn.Module):
    def __init__(self, dials: Dials, layer: int, vocab_size: int):
        super().__init__()
        C, D = dials.width, dials.width // dials.heads
        self.heads, self.kv_heads, self.head_dim, self.window = dials.heads, dials.kv_heads, D, dials.windows[layer]
        self.attend = ATTENTION[dials.attention]
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
        y = self.attend(*(z.transpose(1, 2) for z in (q, k, v)), self.window)  # (B, H, T, D)
        return linear(y.transpose(1, 2).reshape(B, T, H * D), self.c_proj.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (B, T, H, D); cos, sin: (T, 1, D/2) float32"""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, dials: Dials):
        super().__init__()
        self.c_fc = matrix(dials.mlp_ratio * dials.width, dials.width)
        self.c_proj = matrix(dials.width, dials.mlp_ratio * dials.width)

    def forward(self, x: Tensor) -> Tensor:
        return linear(F.relu(linear(x, self.c_fc.weight)).square(), self.c_proj.weight)


class Block(nn.Module):
    def __init__(self, dials: Dials, layer: int, vocab_size: int):
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
    """The latest earlier position where the same `order` tokens ended, else -1, by the hashes of kernels/ngrams.py"""
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
    def __init__(self, dials: Dials, vocab_size: int, seq_len: int):
        super().__init__()
        dials.check()
        self.dials, self.dtype = dials, getattr(torch, dials.dtype)
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

    def losses(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of each target in nats: (B, T)"""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    def loss(self, rows: Tensor) -> Tensor:
        """rows: (B, T + 1) int32 → the mean over all targets"""
        rows = rows.long()
        return F.cross_entropy(self(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    def flops_per_token(self) -> float:
        in_matmuls = sum(w.numel() for name, w in self.named_parameters() if w.ndim == 2 and "embedding" not in name)
        return 6 * in_matmuls + 12 * self.dials.width * sum(self.dials.windows)


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


def schedule(dials: Dials, step: int, progress: float) -> list[float]:
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


# ---- the loop --------------------------------------------------------------------------------------------------------


QUEUED_STEPS = {"cpu": 0, "mps": 0, "cuda": 1}  # steps that the device is given ahead of time


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def to_device(array: np.ndarray | list[float], device: str) -> Tensor:
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.tensor(array, dtype=torch.float32)
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor.to(device)


def on_device(batches: Iterator[np.ndarray], device: str) -> Iterator[Tensor]:
    """Each batch is already on its way to the device when the one before it is handed out."""
    coming = to_device(next(batches), device)
    for batch in batches:
        here, coming = coming, to_device(batch, device)
        yield here


class Coming:
    """The loss of a step that the device may still be at. Reading it waits for that step, and for no later one."""

    def __init__(self, loss: Tensor):
        self.loss, self.done = loss, None
        if loss.is_cuda:
            self.loss, self.done = torch.empty((), pin_memory=True), torch.cuda.Event()
            self.loss.copy_(loss, non_blocking=True)
            self.done.record()

    def item(self) -> float:
        if self.done is not None:
            self.done.synchronize()
        return self.loss.item()


class Trainer:
    """The model, its optimizer, and one step of both."""

    def __init__(self, model: GPT, *, compiled: bool):
        self.model, self.dials = model, model.dials
        self.device = model.lm_head.weight.device.type
        self.optimizer = MuonAdamW(model, compiled=compiled)
        self.loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss

    def step(self, batches: Iterator[Tensor], steps: int, progress: float) -> Coming:
        losses = []
        for _ in range(self.dials.micro_steps):
            loss = self.loss_of(next(batches)) / self.dials.micro_steps
            loss.backward()
            losses.append(loss.detach())
        self.optimizer.update(to_device(schedule(self.dials, steps, progress), self.device))
        self.model.zero_grad(set_to_none=True)
        return Coming(torch.stack(losses).sum())

    def warm_up(self, batch: Tensor) -> None:
        """A step that compiles everything and trains nothing, as in train_mlx.py."""
        before = [p.detach().to("cpu", copy=True) for p in self.model.parameters()]
        self.step(itertools.repeat(batch), 0, 0.0)
        with torch.no_grad():
            for p, old in zip(self.model.parameters(), before, strict=True):
                p.copy_(old)
        self.optimizer.forget()
        synchronize(self.device)


@dataclass(frozen=True)
class Trained:
    seconds: float
    steps: int
    tokens: int


def train(trainer: Trainer, data: prepare.Data, args: argparse.Namespace) -> Trained:
    dials, budget_s = trainer.dials, args.budget_s
    arrays = prepare.batches(data.split("train"), data.bos, rows=dials.batch_rows, seq_len=data.seq_len, seed=args.seed)
    batches = on_device(arrays, trainer.device)
    first = next(batches)
    print("compiling the step" if args.compile else "warming up", flush=True)
    trainer.warm_up(first)
    batches = itertools.chain([first], batches)
    log, tokens_per_step = Log(args, trainer, data), dials.batch_rows * data.seq_len * dials.micro_steps
    gc.collect()
    gc.freeze()
    gc.disable()
    queued: deque[Coming] = deque()  # losses of steps that the device has still to finish
    steps, elapsed_s, step_s, smooth_loss = 0, 0.0, 0.0, None

    def progress() -> float:
        """The share of the budget that has passed when what is queued is done; 1 when no other step is due."""
        ends_s, all_steps = elapsed_s + len(queued) * step_s, steps + len(queued)
        if all_steps == args.steps or (steps and ends_s + step_s / 2 >= budget_s):
            return 1.0
        return min(0.999, max(ends_s / budget_s, all_steps / args.steps if args.steps else 0.0))

    start = time.perf_counter()
    while queued or progress() < 1:
        while len(queued) <= QUEUED_STEPS[trainer.device] and progress() < 1:
            queued.append(trainer.step(batches, steps + len(queued), progress()))
        loss = queued.popleft().item()
        steps += 1
        if not math.isfinite(loss):
            raise measure.Failed(f"the loss became {loss} at step {steps}: lower a learning rate")
        smooth_loss = loss if smooth_loss is None else 0.9 * smooth_loss + 0.1 * loss
        step_s = time.perf_counter() - start - elapsed_s
        elapsed_s += step_s
        shown = min(0.999, elapsed_s / budget_s) if queued else progress()
        log.step(steps, elapsed_s, shown, smooth_loss, steps * tokens_per_step, step_s)
    gc.enable()
    return Trained(elapsed_s, steps, steps * tokens_per_step)


class Log:
    """Every step as a line of metrics.jsonl, one every few seconds on the screen."""

    def __init__(self, args: argparse.Namespace, trainer: Trainer, data: prepare.Data):
        self.metrics = (args.out / "metrics.jsonl").open("w") if args.out else None
        self.tokens_per_step = trainer.dials.batch_rows * data.seq_len * trainer.dials.micro_steps
        peak = args.peak_tflops or hardware.known_tflops(device_name(trainer.device))
        self.share = trainer.model.flops_per_token() * self.tokens_per_step / (peak * 1e12) if peak else None
        self.next_s = 0.0

    def step(self, steps: int, t_s: float, progress: float, loss: float, tokens: int, step_s: float) -> None:
        now = {"step": steps, "t_s": t_s, "progress": progress, "loss": loss, "tokens": tokens}
        now |= {"tokens_s": self.tokens_per_step / step_s, "mfu": self.share / step_s if self.share else None}
        if self.metrics:
            rounded = {key: value if value is None else round(value, 6) for key, value in now.items()}
            self.metrics.write(json.dumps(rounded) + "\n")
            if progress == 1:
                self.metrics.close()
        if t_s >= self.next_s or progress == 1:
            self.next_s = t_s + 5.0
            rate = f"{now['tokens_s']:9,.0f} tokens/s"
            print(f"step {steps:5d}  {progress:6.1%}  loss {loss:.4f}  {rate}", flush=True)


# ---- evaluation ------------------------------------------------------------------------------------------------------


def evaluate(trainer: Trainer, data: prepare.Data, *, compiled: bool) -> float:
    losses_of = torch.compile(trainer.model.losses, dynamic=False) if compiled else trainer.model.losses

    @torch.no_grad()
    def losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return losses_of(*(to_device(z, trainer.device).long() for z in (x, y))).float().cpu().numpy()

    logits_bytes = 2**27 if trainer.device == "cpu" else 2**31
    rows = max(1, logits_bytes // (4 * data.seq_len * data.vocab_size))
    return measure.bits_per_byte(losses, data, rows=rows)


# ---- one run ---------------------------------------------------------------------------------------------------------


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def peak_memory_bytes(device: str) -> int:
    """A GPU's from the allocator, as MLX counts it; on a CPU the process's largest size."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return rss * (1 if sys.platform == "darwin" else 1024)


def usual_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def prefer_fast_kernels(stack: ExitStack) -> None:
    """cuDNN's attention before flash attention's, and TF32 in the Newton-Schulz products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.set_float32_matmul_precision("high")
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    stack.enter_context(sdpa_kernel(order, set_priority=True))


def run(args: argparse.Namespace, dials: Dials) -> dict[str, Any]:
    start, data = time.perf_counter(), prepare.ensure_data()
    dials = dials.complete(args.device, data.seq_len)
    dials.check()
    dials = replace(dials, attention=choose_attention(dials, data.seq_len, args.device))
    torch.manual_seed(args.seed)
    with torch.device(args.device):
        model = GPT(dials, data.vocab_size, data.seq_len)
    params = sum(p.numel() for p in model.parameters())
    print(
        f"{device_name(args.device)}, PyTorch {torch.__version__}, {params / 1e6:.1f} M parameters, {dials}", flush=True
    )
    trainer = Trainer(model, compiled=args.compile)
    trained = train(trainer, data, args)
    peak_bytes = peak_memory_bytes(args.device)
    val_bpb = None if args.no_eval else evaluate(trainer, data, compiled=args.compile)
    return {
        "val_bpb": val_bpb,
        "training_seconds": round(trained.seconds, 1),
        "total_seconds": round(time.perf_counter() - start, 1),
        "peak_vram_mb": round(peak_bytes / 2**20, 1),
        "mfu_percent": None,
        "total_tokens_M": round(trained.tokens / 1e6, 3),
        "num_steps": trained.steps,
        "num_params_M": round(params / 1e6, 3),
        "depth": dials.depth,
        "attention": dials.attention,
        "dtype": dials.dtype,
        "compile": args.compile,
    }


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, Dials]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, metavar="N", help="stop after N steps if the budget has not ended")
    parser.add_argument("--budget-s", type=float, default=prepare.TIME_BUDGET_S, help="seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order of the data (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write summary.json and metrics.jsonl")
    parser.add_argument("--no-eval", action="store_true", help="do not evaluate")
    parser.add_argument("--device", choices=["cpu", "cuda", "mps"], default=usual_device(), help="(%(default)s)")
    about = "torch.compile for loss and optimizer (default: on a GPU of NVIDIA's)"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help=about)
    parser.add_argument("--peak-tflops", type=float, help="for mfu, where the device's is not known")
    parser.add_argument("--config", default="{}", metavar="JSON", help="values of the dials below")
    group = parser.add_argument_group("dials, over those of --config")
    for field in fields(Dials):
        kind = {"int": int, "float": float, "str": str}.get(str(field.type), windows)
        options = {"dtype": ("auto", "float32", "bfloat16"), "attention": ("auto", *ATTENTION)}.get(field.name)
        shown = f"(default: {field.default if field.default != () else 'by --depth'})"
        group.add_argument(f"--{field.name.replace('_', '-')}", type=kind, choices=options, help=shown)
    args = parser.parse_args(argv)
    args.compile = args.device == "cuda" if args.compile is None else args.compile
    if not args.budget_s > 0 or (args.steps is not None and args.steps < 1) or args.seed < 0:
        parser.error("--budget-s and --steps must be above zero, --seed not below")
    return args, read_dials(args)


def windows(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def read_dials(args: argparse.Namespace) -> Dials:
    try:
        values = json.loads(args.config)
        values |= {f.name: getattr(args, f.name) for f in fields(Dials) if getattr(args, f.name) is not None}
        return Dials(**{**values, "windows": tuple(values.get("windows", ()))})
    except (ValueError, TypeError) as error:
        names = ", ".join(asdict(Dials()))
        raise measure.Misuse(f"--config {args.config} cannot be read ({error}): a JSON object of {names}") from error


def main(argv: list[str] | None = None) -> int:
    def body() -> int:
        args, dials = parse(argv)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if args.device == "cuda":
                prefer_fast_kernels(stack)
            summary = run(args, dials)
        if args.out:
            (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        print("---")
        for key, value in summary.items():
            print(f"{key + ':':17} {'' if value is None else f'{value:.6f}' if key == 'val_bpb' else value}")
        return 0

    return measure.guarded("torch_twin", body)


if __name__ == "__main__":
    sys.exit(main())
