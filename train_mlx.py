"""Train a small GPT for a fixed number of seconds and say how well it predicts: the one file that is edited.

    python train_mlx.py [--budget-s 300] [--seed 0] [--out DIR] [--no-eval] [--max-steps N]

Reads top to bottom: dials → operations → model → optimizer → step → loop → summary. Everything here may be changed,
except for what the harness calls: the command line above, what it prints and writes, and

    load_model(weights_path) → model        model(tokens: (B, T) int32) → logits: (B, T, vocab)

where the model is deterministic, causal, and treats every row of a batch by itself. Data, tokenizer and the metric
come from prepare.py, which is fixed.

Letters in the margin: B rows, T positions, C width, H query heads, K key-value heads, D head size, V vocabulary.
"""

import argparse
import gc
import itertools
import json
import math
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import prepare
from agent.lab import hardware

hardware.tune()  # must come before MLX: on a Linux CPU it brings the fast BLAS

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
from mlx.utils import tree_flatten, tree_map, tree_unflatten  # noqa: E402

from agent.lab.hardware import by_device  # noqa: E402
from agent.lab.kernels import fast  # noqa: E402

# ---------------------------------------------------------------------------
# Dials. The comment says why; where it ends in a range, the search may turn the dial:
# [low, high], [low, high] log, or {a, b, c}
# ---------------------------------------------------------------------------

# Shape of the model
DEPTH = by_device(cpu=2, metal=6, cuda=8)  # layers  {2, 3, 4, 6, 8, 10, 12}
ASPECT_RATIO = 64  # width = DEPTH × this, rounded up to whole heads  {32, 48, 64, 96, 128}
HEAD_DIM = by_device(cpu=64, metal=64, cuda=128)  # channels of a head  {32, 64, 128}
QUERIES_PER_KV = 1  # query heads that share one key-value head, at most: they must divide  {1, 2, 4}
WINDOW_PATTERN = "SSSL"  # a letter a layer: S sees a short window, L everything; the last is L  {"L", "SL", "SSSL"}
SHORT_WINDOW = by_device(cpu=0.5, metal=0.5, cuda=0.25)  # the short window as a share of the row  {0.125, 0.25, 0.5}
MLP_RATIO = 4  # hidden channels of the MLP for each channel of the width  {2, 3, 4, 6}
SOFTCAP = 15.0  # logits live in ±this, so that one wrong certainty cannot wreck a step  [8.0, 40.0] log
ROPE_BASE = 10000.0  # the slowest rotation turns once in about 6 × this positions  [1000.0, 200000.0] log
GATE_CHANNELS = 32  # channels of x that decide how much value embedding a head takes in
ENGRAM_LAYERS = by_device(cpu="", metal="", cuda="15")  # layers that look n-grams up: a digit each, from 0
ENGRAM_TOKENS_S = 0.85e6  # least tokens of text a second of budget; rows would learn a shorter text by heart
ENGRAM_ROWS = by_device(cpu=16384, metal=131072, cuda=2097152)  # rows of their table: a hash leads each n-gram to one
ENGRAM_ORDERS = "2233"  # a digit for each share of the width: the length of the n-grams whose rows fill it
ENGRAM_HIDDEN = 0.5  # share of positions that train without n-grams, so that less is learnt by heart
INDUCTION_ORDERS = "1248"  # lengths of matches, of which the longest found counts  {"1", "2", "12", "124", "1248"}

# Optimization
BATCH_ROWS = by_device(cpu=4, metal=16, cuda=64)  # rows that fit on the device at once  {1, 2, 4, 8, 16, 32, 64, 128}
MICRO_STEPS = 1  # batches whose gradients are averaged before one update  {1, 2, 4}
MATRIX_LR = 0.04  # Muon: every matrix inside the blocks  [0.005, 0.2] log
EMBEDDING_LR = 0.6  # AdamW: token and value embeddings, at width 768  [0.05, 3.0] log
ENGRAM_LR = 0.1  # AdamW: embeddings of n-grams, at width 768
INDUCTION_LR = 0.3  # AdamW: embeddings of the token that followed last time, at width 768  [0.03, 3.0] log
UNEMBEDDING_LR = 0.004  # AdamW: the output matrix, at width 768  [0.0005, 0.05] log
SCALAR_LR = 0.5  # AdamW: how much of x0 each layer takes in; a hundredth of it for the residual  [0.02, 2.0] log
WEIGHT_DECAY = 0.2  # Muon only, decays to zero over the run  [0.0, 0.6]
ADAM_BETA1 = 0.8  # short memory: a run has few steps  [0.6, 0.95]
ADAM_BETA2 = 0.95  # likewise  [0.9, 0.995]
MUON_MOMENTUM = 0.95  # reached from 0.85 over the first 300 steps  [0.85, 0.98]
WARMUP_FRACTION = 0.0  # share of the budget in which the learning rate rises  [0.0, 0.2]
WARMDOWN_FRACTION = 0.5  # share of the budget in which it falls at the end  [0.1, 0.9]
FINAL_LR_FRACTION = 0.0  # share of the learning rate that is left at the end  [0.0, 0.2]

# Machinery
DTYPE = by_device(cpu=mx.float32, metal=mx.bfloat16, cuda=mx.bfloat16)  # a CPU has no fast bfloat16
COMPILE = by_device(cpu=False, metal=True, cuda=False)  # a compiled step lacks our CPU kernels; CUDA starts slowly
QUEUED_STEPS = by_device(cpu=0, metal=0, cuda=1)  # steps that the device is given ahead of time
SHORT_RUN_CORE_S = by_device(cpu=60.0, metal=0.0, cuda=0.0)  # seconds × cores below which a run has half the sizes
LOG_EVERY_S = 5.0  # s between plain progress lines

# ---------------------------------------------------------------------------
# Operations, in plain MLX. Below @fast a kernel with its own backward pass runs in the place of a function, where this
# device has one, while the function and all that it reads are as shipped. An edit runs as it is written, and the first
# lines of the log name the operations that have lost their kernel by it.
# ---------------------------------------------------------------------------

EPS = 1e-6  # added inside every norm


def norm(x: mx.array) -> mx.array:
    """x: (…, C) → x / √(mean of x²), without a weight"""
    return mx.fast.rms_norm(x, None, EPS)


@fast
def embedding(table: mx.array, tokens: mx.array, dtype: mx.Dtype) -> mx.array:
    """table: (V, C), tokens: (B, T) → the rows of the table: (B, T, C)"""
    return table[tokens].astype(dtype)


@fast
def linear(x: mx.array, weight: mx.array) -> mx.array:
    """x: (…, C), weight: (F, C) → (…, F), in the dtype of x"""
    return x @ weight.astype(x.dtype).T


@fast
def linear_add(residual: mx.array, x: mx.array, weight: mx.array) -> mx.array:
    """residual + linear(x, weight); one operation, because the matrix product adds while it writes"""
    return mx.addmm(residual, x, weight.astype(x.dtype).T)


@fast
def residual_norm(x: mx.array) -> tuple[mx.array, mx.array]:
    """x and its norm; one operation, because its kernel adds the gradients of both in one pass over memory"""
    return x, norm(x)


@fast
def mix_norm(x: mx.array, x0: mx.array, keep: mx.array, again: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """keep · x + again · x0, its norm, and x0, each (B, T, C); one operation, because its kernel mixes and normalises
    in one pass over memory. x0 is handed on, so that its gradient is summed from layer to layer in the same pass."""
    x = keep.astype(x.dtype) * x + again.astype(x.dtype) * x0
    return x, norm(x), x0


@fast
def gated_add(x: mx.array, key: mx.array, value: mx.array) -> mx.array:
    """x + value × how well key fits x, each (B, T, C); one operation, because its kernel is one pass over memory"""
    fit = mx.sum(norm(x) * norm(key), axis=-1, keepdims=True) * x.shape[-1] ** -0.5  # (B, T, 1)
    return x + mx.sigmoid(fit) * value


class Piece(NamedTuple):
    """The queries of one block with the keys and values that they may see; the last query sees the last key."""

    q: mx.array  # (B, H, t, D)
    k: mx.array  # (B, K, s, D), s ≥ t
    v: mx.array  # (B, K, s, D)


def spans(T: int, window: int) -> list[tuple[int, int, int]]:
    """Blocks of T positions: (start, stop, first) of each, whose queries start … stop - 1 see keys first … stop - 1.

    MLX has a fast kernel for causal attention and none for windows. In blocks of half a window, a query sees at least
    half of the window and at most all of it; with a window of T two blocks are exact, and save a quarter of the scores.
    """
    block = (min(window, T) + 1) // 2
    blocks = [(start, min(start + block, T)) for start in range(0, T, block)]
    return [(start, stop, max(0, stop - window)) for start, stop in blocks]


@fast
def rotary_qkv(
    qkv: mx.array, values: mx.array | None, tokens: mx.array, *,
    heads: int, kv_heads: int, head_dim: int, window: int, rope_base: float,
) -> list[Piece]:  # fmt: skip
    """One projection → queries and keys, normalised and rotated by their positions, and values, cut by the window;
    one operation, because its kernel is one pass over memory between the projection and attention.

    qkv: (B, T, (H + 2K) · D), and K columns of gates if there are value embeddings, tokens: (B, T)
    values: (V, K · D), the value embeddings: a token's row is added to its value as far as the gates are open
    """
    B, T, _ = qkv.shape
    H, K, D = heads, kv_heads, head_dim
    q, k, v, gates = mx.split(qkv, [H * D, (H + K) * D, (H + 2 * K) * D], axis=-1)
    q, k, v = (z.reshape(B, T, -1, D) for z in (q, k, v))  # (B, T, H, D), and K heads for keys and values
    if values is not None:
        gate = 2 * mx.sigmoid(gates[..., :K, None])  # (B, T, K, 1): how much of its value embedding a head takes in
        v = v + gate * embedding(values, tokens, v.dtype).reshape(v.shape)
    # A rotation keeps lengths, so normalising before it is the same as after, and saves a copy.
    q, k, v = (z.transpose(0, 2, 1, 3) for z in (norm(q), norm(k), v))  # (B, H, T, D)
    rope = partial(mx.fast.rope, dims=D, traditional=False, base=rope_base, scale=1.0, offset=0)
    q, k = rope(q), rope(k)  # rotary positions
    blocks = spans(T, window)  # (start, stop, first) of each block
    return [Piece(q[:, :, a:b], k[:, :, first:b], v[:, :, first:b]) for a, b, first in blocks]


@fast
def attend(pieces: list[Piece]) -> mx.array:
    """pieces → causal attention: (B, T, H · D). Each head of keys and values is shared by H / K heads of queries."""
    outputs = [
        mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal").transpose(0, 2, 1, 3)
        for q, k, v in pieces
    ]
    whole = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1)  # (B, T, H, D)
    return whole.reshape(*whole.shape[:2], -1)


@fast
def relu_squared(x: mx.array) -> mx.array:
    """max(x, 0)²; one operation, because its kernel goes back from its result, and x need not be kept"""
    return mx.square(mx.maximum(x, 0))


@fast
def softcap(logits: mx.array, cap: float) -> mx.array:
    """logits: (…, V) → the same in float32, between -cap and cap"""
    return cap * mx.tanh(logits.astype(mx.float32) / cap)


@fast
def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """logits: (…, V), targets: (…) → the loss of each target in nats, float32"""
    return mx.fast.cross_entropy(logits.astype(mx.float32), targets)


@fast
def softcapped_cross_entropy(logits: mx.array, targets: mx.array, cap: float) -> mx.array:
    """The loss of capped logits; one operation, because its kernel is one pass over the largest array of a step"""
    return cross_entropy(softcap(logits, cap), targets)


def mixed(h: mx.array) -> mx.array:
    """h: uint32, mixed so that each bit depends on all bits (the last step of Appleby's MurmurHash3)"""
    h = (h ^ (h >> 16)) * mx.array(0x85EBCA6B, mx.uint32)
    h = (h ^ (h >> 13)) * mx.array(0xC2B2AE35, mx.uint32)
    return h ^ (h >> 16)


def ngram_hash(tokens: mx.array, order: int, salt: int = 0) -> mx.array:
    """tokens: (B, T) → a hash of the last `order` tokens at each position: (B, T) uint32

    Equal n-grams have equal hashes in any row; before it stands padding that is no token. Another salt gives others.
    """
    T = tokens.shape[1]
    spread = (tokens.astype(mx.uint32) + 1) * mx.array(0x9E3779B1, mx.uint32)
    padded = mx.pad(spread, [(0, 0), (order - 1, 0)])
    h = mx.full(tokens.shape, (order * 0x9E3779B1 + salt * 0x7FEB352D) % 2**32, mx.uint32)
    for first in range(order):
        h = mixed(h + padded[:, first : first + T])
    return h


def ngram_ids(tokens: mx.array, order: int, rows: int, salt: int = 0) -> mx.array:
    """tokens: (B, T) → the row of each position in a table of `rows` rows: (B, T) int32"""
    return (ngram_hash(tokens, order, salt) % mx.array(rows, mx.uint32)).astype(mx.int32)


def last_seen(tokens: mx.array, order: int) -> mx.array:
    """tokens: (B, T) → the latest earlier position where the same `order` tokens ended in the row, else -1: (B, T)

    It sorts hashes that have their positions in the low bits, so that equal n-grams lie side by side in the order of
    their positions. In rows of 2048 tokens 21 bits are left of a hash: one search in a thousand finds another n-gram.
    """
    T = tokens.shape[1]
    bits = max(1, (T - 1).bit_length())
    keys = mx.sort((ngram_hash(tokens, order) << bits) | mx.arange(T, dtype=mx.uint32), axis=1)
    position, ngram = (keys & (2**bits - 1)).astype(mx.int32), keys >> bits
    before = mx.where(ngram[:, 1:] == ngram[:, :-1], position[:, :-1], -1)
    return mx.put_along_axis(mx.full(tokens.shape, -1, mx.int32), position[:, 1:], before, axis=1)


# ---------------------------------------------------------------------------
# The model
# ---------------------------------------------------------------------------


class Refused(Exception):
    """A configuration that cannot be trained here; the message says what to change."""


class Diverged(Exception):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class GPTConfig:
    vocab_size: int
    seq_len: int
    depth: int
    width: int
    heads: int
    kv_heads: int
    windows: tuple[int, ...]  # most positions that a query of each layer sees, itself included
    mlp_ratio: int
    softcap: float
    rope_base: float
    engram_layers: tuple[int, ...] = ()  # layers that look n-grams up
    engram_rows: int = 0


def config_from_dials(*, vocab_size: int, seq_len: int, is_text_long: bool = False) -> GPTConfig:
    sizes = DEPTH, ASPECT_RATIO, HEAD_DIM, ENGRAM_ROWS, BATCH_ROWS, MICRO_STEPS, SOFTCAP
    if HEAD_DIM % 2 or MLP_RATIO % 1 or min(sizes) <= 0:
        raise Refused("HEAD_DIM must be even, MLP_RATIO whole, and every size, count and the SOFTCAP above zero")
    heads = math.ceil(DEPTH * ASPECT_RATIO / HEAD_DIM)
    width = heads * HEAD_DIM
    group = max(size for size in range(1, min(QUERIES_PER_KV, heads) + 1) if heads % size == 0)
    if ENGRAM_LAYERS and not ENGRAM_LAYERS.isdecimal():
        raise Refused(f"ENGRAM_LAYERS is {ENGRAM_LAYERS!r}: write a digit a layer, 0 for the first")
    engram_layers = tuple(layer for layer in map(int, ENGRAM_LAYERS) if layer < DEPTH) if is_text_long else ()
    are_orders = ENGRAM_ORDERS.isdecimal() and "0" not in ENGRAM_ORDERS
    if engram_layers and (not are_orders or width % len(ENGRAM_ORDERS)):
        raise Refused(f"ENGRAM_ORDERS is {ENGRAM_ORDERS!r}: write as many digits above 0 as divide the width, {width}")
    if not WINDOW_PATTERN or set(WINDOW_PATTERN) - set("SL"):
        raise Refused(f"WINDOW_PATTERN is {WINDOW_PATTERN!r}: write a letter a layer, S or L")
    letters = [WINDOW_PATTERN[i % len(WINDOW_PATTERN)] for i in range(DEPTH - 1)] + ["L"]
    reach = {"S": max(2, int(seq_len * SHORT_WINDOW)), "L": seq_len}
    return GPTConfig(
        vocab_size=vocab_size,
        seq_len=seq_len,
        depth=DEPTH,
        width=width,
        heads=heads,
        kv_heads=heads // group,
        windows=tuple(reach[letter] for letter in letters),
        mlp_ratio=MLP_RATIO,
        softcap=SOFTCAP,
        rope_base=ROPE_BASE,
        engram_layers=engram_layers,
        engram_rows=ENGRAM_ROWS if engram_layers else 0,
    )


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, normalised queries and keys, and, on every other layer, a value
    embedding: a vector looked up for each token and mixed into its value, as much as an input-dependent gate says
    (after ResFormer, arXiv:2410.17897)."""

    def __init__(self, config: GPTConfig, layer: int):
        super().__init__()
        C, D = config.width, config.width // config.heads
        self.shape = {"heads": config.heads, "kv_heads": config.kv_heads, "head_dim": D}
        self.window, self.rope_base = config.windows[layer], config.rope_base
        self.c_q = nn.Linear(C, config.heads * D, bias=False)
        self.c_k = nn.Linear(C, config.kv_heads * D, bias=False)
        self.c_v = nn.Linear(C, config.kv_heads * D, bias=False)
        self.c_proj = nn.Linear(config.heads * D, C, bias=False)
        self.has_value_embedding = layer % 2 == (config.depth - 1) % 2  # the last layer always has one
        if self.has_value_embedding:
            self.value_embedding = nn.Embedding(config.vocab_size, config.kv_heads * D)
            self.gate = nn.Linear(min(GATE_CHANNELS, C), config.kv_heads, bias=False)

    def __call__(self, x: mx.array, normed: mx.array, tokens: mx.array) -> mx.array:
        """x, normed: (B, T, C), tokens: (B, T) → x + what attention adds to it"""
        weights = [self.c_q.weight, self.c_k.weight, self.c_v.weight]
        if self.has_value_embedding:
            weights.append(self.gate_rows())
        qkv = linear(normed, mx.concatenate(weights))  # (B, T, (H + 2K) · D [+ gates])
        values = self.value_embedding.weight if self.has_value_embedding else None
        pieces = rotary_qkv(qkv, values, tokens, **self.shape, window=self.window, rope_base=self.rope_base)
        y = attend(pieces)  # (B, T, H · D)
        return linear_add(x, y, self.c_proj.weight)

    def gate_rows(self) -> mx.array:
        """The gates as rows of the one projection: zero for channels they do not read, padded to a multiple of 8."""
        K, channels = self.gate.weight.shape
        return mx.pad(self.gate.weight, [(0, -K % 8), (0, self.c_q.weight.shape[1] - channels)])


class MLP(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.c_fc = nn.Linear(config.width, config.mlp_ratio * config.width, bias=False)
        self.c_proj = nn.Linear(config.mlp_ratio * config.width, config.width, bias=False)

    def __call__(self, x: mx.array, normed: mx.array) -> mx.array:
        hidden = relu_squared(linear(normed, self.c_fc.weight))
        return linear_add(x, hidden, self.c_proj.weight)


class Engram(nn.Module):
    """What a layer takes from the n-grams that end at each position: a value, as far as its key fits the stream (after
    Engram, arXiv:2601.07372)."""

    def __init__(self, width: int):
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def __call__(self, x: mx.array, ngrams: mx.array) -> mx.array:
        """x: the stream, ngrams: their embeddings, both (B, T, C) → x + the gated value"""
        key, value = linear(ngrams, self.key.weight), linear(ngrams, self.value.weight)
        return gated_add(x, key, value)


class Block(nn.Module):
    def __init__(self, config: GPTConfig, layer: int):
        super().__init__()
        self.engram = Engram(config.width) if layer in config.engram_layers else None
        self.attn = Attention(config, layer)
        self.mlp = MLP(config)

    def __call__(self, x: mx.array, normed: mx.array, tokens: mx.array) -> mx.array:
        x = self.attn(x, normed, tokens)
        return self.mlp(*residual_norm(x))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        if config.engram_layers:
            self.engram_embedding = mx.zeros((config.engram_rows, config.width // len(ENGRAM_ORDERS)))
        followers = len(INDUCTION_ORDERS) * config.vocab_size + 1  # the last row is for no match
        self.induction_embedding = mx.zeros((followers, config.width))
        self.blocks = [Block(config, layer) for layer in range(config.depth)]
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.resid_lambdas = mx.ones(config.depth)  # share of the stream that each layer keeps
        self.x0_lambdas = mx.full(config.depth, 0.1)  # share of the embedded tokens that each layer adds again
        self.init_weights()

    def init_weights(self) -> None:
        """Embedding N(0, 1), output N(0, 0.001²), every matrix that writes to the stream zero, all others uniform with
        standard deviation 1/√C, gates, followers and n-grams zero: at first the model is its embedding, and the loss
        is ln V."""
        bound = (3 / self.config.width) ** 0.5
        for name, weight in tree_flatten(self.trainable_parameters()):
            if name == "token_embedding.weight":
                weight[:] = mx.random.normal(weight.shape)
            elif name == "lm_head.weight":
                weight[:] = 0.001 * mx.random.normal(weight.shape)
            elif name.endswith(("c_proj.weight", "gate.weight", "induction_embedding")):
                weight[:] = mx.zeros(weight.shape)
            elif weight.ndim == 2 and "engram" not in name:  # the engram's matrices stay as MLX draws them
                weight[:] = mx.random.uniform(-bound, bound, weight.shape)

    def __call__(self, tokens: mx.array) -> mx.array:
        """tokens: (B, T) int32 → logits: (B, T, V) float32, within ±softcap"""
        return softcap(linear(self.hidden(tokens), self.lm_head.weight), self.config.softcap)

    def losses(self, tokens: mx.array, targets: mx.array) -> mx.array:
        """tokens, targets: (B, T) int32 → cross-entropy of each target in nats, in training: (B, T) float32"""
        key = mx.stack([mx.sum(tokens), mx.sum(targets)]).astype(mx.uint32)  # drawn from the batch: no state
        logits = linear(self.hidden(tokens, key), self.lm_head.weight)
        return softcapped_cross_entropy(logits, targets, self.config.softcap)

    def followers(self, tokens: mx.array) -> mx.array:
        """The row of each position's longest match: the token that followed there, in the share of that length"""
        V = self.config.vocab_size
        ids = mx.full(tokens.shape, len(INDUCTION_ORDERS) * V, mx.int32)
        for level, order in enumerate(map(int, INDUCTION_ORDERS)):
            place = last_seen(tokens, order)
            token = mx.take_along_axis(tokens, mx.maximum(place + 1, 0), axis=1).astype(mx.int32)
            ids = mx.where(place >= 0, level * V + token, ids)
        return ids

    def ngrams(self, tokens: mx.array, key: mx.array | None) -> mx.array:
        """The embeddings of the n-grams that end at each position, side by side: (B, T, C); key: hides some of them"""
        orders = enumerate(map(int, ENGRAM_ORDERS))
        rows = [ngram_ids(tokens, order, self.config.engram_rows, salt=share) for share, order in orders]
        ngrams = embedding(self.engram_embedding, mx.stack(rows, axis=-1), DTYPE).reshape(*tokens.shape, -1)
        if key is None:
            return ngrams
        return mx.where(mx.random.uniform(shape=(*tokens.shape, 1), key=key) < ENGRAM_HIDDEN, 0, ngrams)

    def hidden(self, tokens: mx.array, key: mx.array | None = None) -> mx.array:
        """What the output matrix reads: (B, T, C), normalised; key: of random numbers, in training"""
        ngrams = self.ngrams(tokens, key) if self.config.engram_layers else None
        _, x = residual_norm(embedding(self.token_embedding.weight, tokens, DTYPE))
        x = x + embedding(self.induction_embedding, self.followers(tokens), DTYPE)
        x0 = x
        for block, keep, again in zip(self.blocks, self.resid_lambdas, self.x0_lambdas, strict=True):
            if block.engram is not None:
                x = block.engram(x, ngrams)
            x, normed, x0 = mix_norm(x, x0, keep, again)
            x = block(x, normed, tokens)
        return norm(x)


def save_model(model: GPT, path: Path) -> None:
    weights = dict(tree_flatten(model.trainable_parameters()))
    mx.save_safetensors(str(path), weights, metadata={"config": json.dumps(asdict(model.config))})


def load_model(weights_path: str | Path) -> GPT:
    """The trained model, ready to be scored; its configuration travels with the weights."""
    weights, metadata = mx.load(str(weights_path), return_metadata=True)
    fields = json.loads(metadata["config"])
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    model = GPT(GPTConfig(**{**fields, **lists}))
    model.load_weights(list(weights.items()))
    return model


def num_params(model: GPT) -> int:
    return sum(weight.size for _, weight in tree_flatten(model.trainable_parameters()))


def flops_per_token(model: GPT) -> float:
    """Multiply-adds count two, the backward pass twice the forward one; looking up an embedding costs nothing."""
    config = model.config
    weights = tree_flatten(model.trainable_parameters())
    in_matmuls = sum(w.size for name, w in weights if w.ndim == 2 and "embedding" not in name)
    keys = sum(config.windows)  # counted as if every query saw its whole window, as this family of scripts does
    return 6 * in_matmuls + 12 * config.width * keys


# ---------------------------------------------------------------------------
# The optimizer: Muon for the matrices inside the blocks, AdamW for everything else
# ---------------------------------------------------------------------------

# Newton–Schulz: five steps of X ← aX + (bA + cA²)X with A = XXᵀ, the coefficients of Polar Express (arXiv:2505.16932).
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def orthogonalize(G: mx.array, dtype: mx.Dtype = mx.float32) -> mx.array:
    """Move every singular value of each matrix near one: the direction of steepest descent in the spectral norm.

    In float32: bfloat16 rounds with every product, and the iteration takes that noise for directions of the gradient
    and gives them full size (a matrix of rank one comes out with three times its norm).

    G: (N, rows, columns) → the same shape
    """
    X = G.astype(dtype)
    X = X / (mx.linalg.norm(X, axis=(-2, -1), keepdims=True) * 1.02 + 1e-6)
    wide = G.shape[-2] <= G.shape[-1]  # A is the product of the short side
    for a, b, c in POLAR_EXPRESS:
        A = X @ X.swapaxes(-1, -2) if wide else X.swapaxes(-1, -2) @ X
        B = mx.addmm(A, A, A, alpha=c, beta=b)  # bA + cA²
        X = mx.addmm(X, B, X, beta=a) if wide else mx.addmm(X, X, B, beta=a)
    return X


@fast
def adamw(
    p: mx.array, grad: mx.array, m: mx.array, v: mx.array, *,
    lr: mx.array, beta1: float, beta2: float, eps: float, step: mx.array,
) -> tuple[mx.array, mx.array, mx.array]:  # fmt: skip
    """p, m and v after a step; one operation, as the next two, because its kernel is one pass over memory"""
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * mx.square(grad)
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return p - lr * m_hat / (mx.sqrt(v_hat) + eps), m, v


@fast
def nesterov(momentum: mx.array, grad: mx.array, mu: mx.array) -> tuple[mx.array, mx.array]:
    """The running mean of the gradients, and Nesterov's update one step ahead of it"""
    momentum = mu * momentum + (1 - mu) * grad
    return momentum, (1 - mu) * grad + mu * momentum


@fast
def cautious_step(p: mx.array, update: mx.array, scale: mx.array, *, lr: mx.array, decay: mx.array) -> mx.array:
    """p after a step of update · scale; weights decay only where the decay agrees with the step (arXiv:2510.12402)

    p, update: (N, rows, columns), scale: (N, rows, 1) or (N, 1, columns)
    """
    step = update * scale
    return p - lr * (step + decay * p * (step * p >= 0))


# At the first step the gradients of the lambdas are zero but for rounding: a smaller eps would make whole steps of it.
SCALAR_EPS = 1e-6


class AdamGroup(NamedTuple):
    lr: float
    beta1: float
    eps: float = 1e-10


class MuonAdamW:
    """Two optimizers over one flat dictionary of parameters, as pure functions: `update` returns what is new.

    Muon (Jordan 2024): Nesterov momentum, orthogonalised, then NorMuon's variance reduction (arXiv:2510.05491) and
    cautious weight decay (arXiv:2510.12402), with matrices of one shape stacked into one batch. AdamW
    (arXiv:1711.05101) for embeddings, output and scalars, each with a learning rate of its own.
    """

    def __init__(self, params: dict[str, mx.array], width: int):
        by_width = (width / 768) ** -0.5  # the rates were tuned at width 768
        self.adam: dict[str, AdamGroup] = {}
        self.muon: dict[str, list[str]] = {}  # "rows×columns" → names
        for name, p in params.items():
            if "embedding" in name:
                lr = {"induction_embedding": INDUCTION_LR, "engram_embedding": ENGRAM_LR}.get(name, EMBEDDING_LR)
                self.adam[name] = AdamGroup(lr * by_width, ADAM_BETA1)
            elif name == "lm_head.weight":
                self.adam[name] = AdamGroup(UNEMBEDDING_LR * by_width, ADAM_BETA1)
            elif name == "resid_lambdas":
                self.adam[name] = AdamGroup(SCALAR_LR * 0.01, ADAM_BETA1, eps=SCALAR_EPS)
            elif p.ndim < 2:
                self.adam[name] = AdamGroup(SCALAR_LR, 0.96, eps=SCALAR_EPS)
            else:
                self.muon.setdefault("×".join(map(str, p.shape)), []).append(name)

    def init(self, params: dict[str, mx.array]) -> dict[str, mx.array]:
        """The state before the first step: two moments a parameter for AdamW, two a stack of matrices for Muon."""
        state = {}
        for name in self.adam:
            state[f"m.{name}"] = state[f"v.{name}"] = mx.zeros(params[name].shape)
        for shape, names in self.muon.items():
            rows, columns = params[names[0]].shape
            state[f"momentum.{shape}"] = mx.zeros((len(names), rows, columns))
            reduced = (len(names), rows, 1) if rows >= columns else (len(names), 1, columns)
            state[f"variance.{shape}"] = mx.zeros(reduced)
        return state

    def update(
        self, params: dict[str, mx.array], grads: dict[str, mx.array], state: dict[str, mx.array], now: "Schedule"
    ) -> tuple[dict[str, mx.array], dict[str, mx.array]]:
        params, state = dict(params), dict(state)
        for name, group in self.adam.items():
            params[name], state[f"m.{name}"], state[f"v.{name}"] = adamw(
                params[name],
                grads[name],
                state[f"m.{name}"],
                state[f"v.{name}"],
                lr=group.lr * now.lr,
                beta1=group.beta1,
                beta2=ADAM_BETA2,
                eps=group.eps,
                step=now.step,
            )
        for shape, names in self.muon.items():
            stacked, state[f"momentum.{shape}"], state[f"variance.{shape}"] = muon_step(
                mx.stack([params[name] for name in names]),
                mx.stack([grads[name] for name in names]),
                state[f"momentum.{shape}"],
                state[f"variance.{shape}"],
                now,
            )
            views = mx.split(stacked, len(names))  # stacked[i] would copy
            params.update({name: view.squeeze(0) for name, view in zip(names, views, strict=True)})
        return params, state


def muon_step(p, grad, momentum, variance, now: "Schedule", *, beta2: float = 0.95):
    """One step for N matrices of one shape. All: (N, rows, columns), `variance` with its short side reduced to 1."""
    rows, columns = p.shape[-2:]
    momentum, update = nesterov(momentum, grad, now.momentum)
    update = orthogonalize(update)
    # NorMuon: even out the rows (or columns) by a running second moment, keeping the norm of the whole.
    axis = -1 if rows >= columns else -2
    mean_square = mx.mean(mx.square(update), axis=axis, keepdims=True)
    variance = beta2 * variance + (1 - beta2) * mean_square
    scale = mx.rsqrt(mx.maximum(variance, 1e-10))
    before = mx.sqrt(mx.sum(mean_square, axis=(-2, -1), keepdims=True))
    after = mx.sqrt(mx.sum(mean_square * mx.square(scale), axis=(-2, -1), keepdims=True))
    scale = scale * before / mx.maximum(after, 1e-10)
    # Cautious: weights decay only where the decay agrees with the step.
    lr = MATRIX_LR * max(1, rows / columns) ** 0.5 * now.lr
    return cautious_step(p, update, scale, lr=lr, decay=now.weight_decay), momentum, variance


class Schedule(NamedTuple):
    """What changes from step to step, as arrays: a Python number would be compiled in."""

    step: mx.array  # counted from 1
    lr: mx.array  # multiplies every learning rate
    momentum: mx.array  # Muon's
    weight_decay: mx.array  # Muon's


def schedule(step: int, progress: float) -> Schedule:
    """progress: the share of the budget that has passed, 0 to 1"""
    rise = progress / WARMUP_FRACTION if progress < WARMUP_FRACTION else 1.0
    fall = min(1.0, (1 - progress) / WARMDOWN_FRACTION) if WARMDOWN_FRACTION else 1.0
    ramp = min(step / 300, 1)
    return Schedule(
        step=mx.array(float(step + 1)),
        lr=mx.array(min(rise, fall + (1 - fall) * FINAL_LR_FRACTION)),
        momentum=mx.array(0.85 + (MUON_MOMENTUM - 0.85) * ramp),
        weight_decay=mx.array(WEIGHT_DECAY * (1 - progress)),
    )


# ---------------------------------------------------------------------------
# The step: two functions of arrays, which is all that mx.compile needs to know
# ---------------------------------------------------------------------------


def make_step(model: GPT, optimizer: MuonAdamW):
    """Returns step(params, state, batches, now) → (params, state, loss), which changes nothing but what it returns.

    The gradients of each batch are evaluated before the next is looked at, so neither memory nor the graph grows with
    their number. MLX keeps only so many operations in flight, and the update has many small ones: gradients and update
    given to the device together leave it too little to do while Python plans the next step.
    """

    def loss_of(params, rows):  # rows: (B, T + 1)
        model.update(tree_unflatten(list(params.items())))
        return mx.mean(model.losses(rows[:, :-1], rows[:, 1:]))

    def add_gradients(params, rows, sums):
        loss, grads = mx.value_and_grad(loss_of)(params, rows)
        return tree_map(mx.add, sums, (loss, grads)) if sums else (loss, grads)

    def apply_gradients(params, state, sums, now):
        loss, grads = tree_map(lambda total: total / MICRO_STEPS, sums) if MICRO_STEPS > 1 else sums
        return *optimizer.update(params, grads, state, now), loss

    if COMPILE:
        add_gradients, apply_gradients = mx.compile(add_gradients), mx.compile(apply_gradients)

    def step(params, state, batches, now: Schedule):
        sums = ()
        for micro_step in range(MICRO_STEPS):
            sums = add_gradients(params, mx.array(next(batches)), sums)
            if micro_step < MICRO_STEPS - 1:
                mx.eval(sums)
        mx.async_eval(sums)  # the device works, while Python plans the update …
        params, state, loss = apply_gradients(params, state, sums, now)
        mx.async_eval(params, state, loss)  # … and then the next step
        return params, state, loss

    return step


# ---------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------


def gigabytes_of_a_step(model: GPT) -> dict[str, float]:
    """The sizes of a step's arrays; the factors were fitted to measured peaks, a little above them."""
    config, tokens, fused = model.config, BATCH_ROWS * model.config.seq_len, fast.runs(DTYPE)
    is_loss_fused = fused and "softcapped_cross_entropy" not in fast.plain
    logits = 2 * DTYPE.size if is_loss_fused else 16  # bytes: they and their gradient, or four float32 copies
    channels = 14 + 3 * config.mlp_ratio if fused else 16 + 5 * config.mlp_ratio  # numbers of a layer, per channel
    return {
        "logits": tokens * config.vocab_size * logits / 1e9,
        "activations": tokens * config.depth * config.width * channels * DTYPE.size / 1e9,
        "attention": tokens * config.heads * hardware.score_bytes(config.windows, DTYPE.size) / 1e9,
        "weights": 32 * num_params(model) / 1e9,  # float32: parameters, gradients, two moments, and the new ones
    }


def fit_into_memory(model: GPT, limit_gb: float) -> None:
    """Size a step's arrays before they freeze the screen: on a Mac the GPU's memory is the system's.

    There the batch is cut until it fits: half the rows in twice the micro-steps make the same update. Raises Refused,
    naming the sizes and the dials.
    """
    global BATCH_ROWS, MICRO_STEPS
    while hardware.preset() == "metal" and BATCH_ROWS % 2 == 0 and sum(gigabytes_of_a_step(model).values()) > limit_gb:
        BATCH_ROWS, MICRO_STEPS = BATCH_ROWS // 2, 2 * MICRO_STEPS
    gigabytes = gigabytes_of_a_step(model)
    needed = sum(gigabytes.values())
    if needed > limit_gb:
        parts = ", ".join(f"{name} {size:.1f}" for name, size in gigabytes.items())
        raise Refused(
            f"a step of {BATCH_ROWS} rows would need about {needed:.1f} GB ({parts}), and {hardware.device_name()} "
            f"allows {limit_gb:.1f} GB: lower BATCH_ROWS (raise MICRO_STEPS), DEPTH or ASPECT_RATIO"
        )


def fit_into_budget(budget_s: float) -> None:
    """Halve rows and width of a short run on a CPU: a hundred small steps learn more there than forty large ones.

    The budget and the cores decide, and not the clock, as runs of a night must not differ in their sizes.
    """
    global BATCH_ROWS, ASPECT_RATIO
    if budget_s * hardware.usable_cores() < SHORT_RUN_CORE_S:
        BATCH_ROWS, ASPECT_RATIO = max(1, BATCH_ROWS // 2), ASPECT_RATIO / 2


def refuse_growth(model: GPT) -> None:
    """End a run on a Mac that takes half more memory than was estimated. Raises Refused."""
    estimated_gb = sum(gigabytes_of_a_step(model).values())
    if peak_gb := hardware.outgrown_gb(estimated_gb):
        raise Refused(
            f"the first steps took {peak_gb:.1f} GB where {estimated_gb:.1f} GB were estimated, and more would freeze "
            "the screen: lower BATCH_ROWS (raise MICRO_STEPS), or count what is new in gigabytes_of_a_step"
        )


@dataclass(frozen=True)
class Trained:
    seconds: float  # the budget's clock leaves out start and compilation
    steps: int
    tokens: int
    mfu: float  # the share of the device's peak FLOP/s that the model's own arithmetic took


def train(model: GPT, data: prepare.Data, *, budget_s: float, seed: int, max_steps: int | None, log: "Log") -> Trained:
    """Train `model` in place until the budget's time, or `max_steps`, is over.

    Raises Diverged, naming step and loss, when the loss is not finite.
    """
    params = dict(tree_flatten(model.trainable_parameters()))
    optimizer = MuonAdamW(params, model.config.width)
    state = optimizer.init(params)
    step = make_step(model, optimizer)
    batches = prepare.batches(data.split("train"), data.bos, rows=BATCH_ROWS, seq_len=data.seq_len, seed=seed)
    tokens_per_step = BATCH_ROWS * data.seq_len * MICRO_STEPS
    flops_per_step, peak_flops = flops_per_token(model) * tokens_per_step, hardware.peak_flops()

    # The first call compiles. Its results are dropped and its batch is used again: it trains nothing.
    log.say("compiling the step" if COMPILE else "warming up")
    first = next(batches)
    mx.eval(step(params, state, itertools.repeat(first), schedule(0, 0.0)))
    batches = itertools.chain([first], batches)

    gc.collect()
    gc.freeze()  # a collection in the middle of a run stalls it for up to half a second
    gc.disable()
    queued: deque[mx.array] = deque()  # losses of steps that the device has still to finish
    steps, elapsed_s, step_s, smooth_loss = 0, 0.0, 0.0, None

    def progress() -> float:
        """The share of the budget that has passed when the device has done what is queued: 1 if another step would end
        further from the budget than this, since slow steps must not buy extra time."""
        ends_s = elapsed_s + len(queued) * step_s
        if steps + len(queued) == max_steps or (steps and ends_s + step_s / 2 >= budget_s):
            return 1.0
        return min(0.999, max(ends_s / budget_s, (steps + len(queued)) / max_steps if max_steps else 0.0))

    clock = hardware.BudgetClock()  # on a CPU it leaves out what other programs took
    while queued or progress() < 1:
        while len(queued) <= QUEUED_STEPS and progress() < 1:
            params, state, loss = step(params, state, batches, schedule(steps + len(queued), progress()))
            queued.append(loss)
        loss = queued.popleft().item()  # waits for the device
        steps += 1
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss} at step {steps}: lower a learning rate")
        smooth_loss = loss if smooth_loss is None else 0.9 * smooth_loss + 0.1 * loss
        step_s = clock.elapsed_s - elapsed_s
        elapsed_s += step_s
        if steps <= hardware.WATCHED_STEPS:
            refuse_growth(model)
        log.step(
            step=steps,
            t_s=elapsed_s,
            progress=progress() if not queued else min(0.999, elapsed_s / budget_s),
            loss=smooth_loss,
            tokens=steps * tokens_per_step,
            tokens_s=tokens_per_step / step_s,
            mfu=flops_per_step / step_s / peak_flops,
        )
    gc.enable()
    model.update(tree_unflatten(list(params.items())))
    return Trained(elapsed_s, steps, steps * tokens_per_step, mfu=steps * flops_per_step / elapsed_s / peak_flops)


class Log:
    """Progress: one live line on a terminal, a plain line every few seconds elsewhere, and a thousand steps, or all if
    there are fewer, as lines of metrics.jsonl in the output folder, if there is one."""

    def __init__(self, out: Path | None, budget_s: float):
        self.budget_s = budget_s
        self.metrics = (out / "metrics.jsonl").open("w") if out else None
        self.live = sys.stdout.isatty()
        self.pause_s = 0.1 if self.live else LOG_EVERY_S
        self.next_s = 0.0
        self.next_point = 0.0  # the progress at which metrics.jsonl gets its next line
        self.shown = (0.0, 0.0)  # seconds and tokens of the line before

    def say(self, text: str) -> None:
        print(text, flush=True)

    def step(self, **now: float) -> None:
        is_last = now["progress"] == 1
        if self.metrics and (is_last or now["progress"] >= self.next_point):
            self.metrics.write(json.dumps({key: round(value, 6) for key, value in now.items()}) + "\n")
            self.next_point = now["progress"] + 0.001
        if now["t_s"] < self.next_s and not is_last:
            return
        self.next_s = now["t_s"] + self.pause_s
        if self.metrics:
            self.metrics.flush()  # others read the file during the run
        seconds, tokens = (0.0, 0.0) if is_last else self.shown  # the last line tells of the whole run
        tokens_s = (now["tokens"] - tokens) / (now["t_s"] - seconds)
        self.shown = now["t_s"], now["tokens"]
        line = (
            f"step {now['step']:5d}  {now['progress']:6.1%}  loss {now['loss']:.4f}  {tokens_s:9,.0f} tokens/s  "
            f"mfu {now['mfu'] * tokens_s / now['tokens_s']:5.1%}  {max(0.0, self.budget_s - now['t_s']):4.0f} s left"
        )
        print(f"\r{line}" if self.live else line, end="" if self.live and not is_last else "\n", flush=True)


# ---------------------------------------------------------------------------
# One run, from the command line to the summary
# ---------------------------------------------------------------------------


def run(args: argparse.Namespace) -> dict[str, float | list[str] | None]:
    start = time.perf_counter()
    data = prepare.ensure_data()
    if args.out:
        try:
            args.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"--out {args.out} cannot be made ({error.strerror}): name another folder") from error
    log = Log(args.out, args.budget_s)
    fit_into_budget(args.budget_s)
    mx.random.seed(args.seed)
    is_text_long = data.split("train").tokens.size >= ENGRAM_TOKENS_S * args.budget_s
    model = GPT(config_from_dials(vocab_size=data.vocab_size, seq_len=data.seq_len, is_text_long=is_text_long))
    fit_into_memory(model, limit_gb=hardware.limit_memory() / 1e9)
    rows = f"{BATCH_ROWS} rows a batch, {num_params(model) / 1e6:.1f} M parameters, {model.config}"
    log.say(f"{hardware.device_name()}, MLX {mx.__version__}, {rows}")
    if fast.plain:
        log.say(f"edited, and so without a kernel: {', '.join(fast.plain)}")
    trained = train(model, data, budget_s=args.budget_s, seed=args.seed, max_steps=args.max_steps, log=log)
    peak_mb = mx.get_peak_memory() / 2**20
    if args.out:
        save_model(model, args.out / "model.safetensors")
    val_bpb = None
    if not args.no_eval:
        log.say("evaluating")
        val_bpb = prepare.evaluate_bpb(model, data)
    return {
        "val_bpb": val_bpb,
        "training_seconds": round(trained.seconds, 1),
        "total_seconds": round(time.perf_counter() - start, 1),
        "peak_vram_mb": round(peak_mb, 1),
        "mfu_percent": round(100 * trained.mfu, 2),
        "total_tokens_M": round(trained.tokens / 1e6, 3),
        "num_steps": trained.steps,
        "num_params_M": round(num_params(model) / 1e6, 3),
        "depth": DEPTH,
        "plain": fast.plain,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train a small GPT for a fixed time and print its bits per byte.")
    parser.add_argument(
        "--budget-s", type=prepare.decimal(), default=prepare.TIME_BUDGET_S, help="seconds of training (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=prepare.whole(0, 2**63 - 1), default=0, help="of weights and order of the data (%(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write summary.json, metrics.jsonl, model.safetensors")
    parser.add_argument("--no-eval", action="store_true", help="leave the score to somebody else")
    parser.add_argument(
        "--max-steps", type=prepare.whole(), metavar="N", help="stop after N steps if the budget has not ended"
    )
    args = parser.parse_args(argv)
    try:
        summary = run(args)
    except (Refused, prepare.DataError) as error:
        print(f"train_mlx: {error}", file=sys.stderr)
        return 2
    except Diverged as error:
        print(f"train_mlx: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("train_mlx: interrupted", file=sys.stderr)
        return 130
    if args.out:
        (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print("---")
    for key, value in summary.items():
        if value not in (None, []):  # --no-eval leaves the score to somebody else
            print(f"{key + ':':17} {f'{value:.6f}' if key == 'val_bpb' else value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
