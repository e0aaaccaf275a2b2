"""The model of train_mlx.py: the same shapes, parameter names and initial distributions."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from twin.attention import ATTENTION
from twin.dials import Dials


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
