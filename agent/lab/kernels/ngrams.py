"""Hash the n-gram that ends at each position, for tables of embeddings, and find where it stood before.

Plain MLX on every device: its integers of (B, T) take a thousandth of the memory of one of the model's activations.
"""

import mlx.core as mx

from agent.lab.kernels.windows import Array


def mixed(h: Array) -> Array:
    """Return h (uint32) mixed so that each bit depends on all bits (the last step of Appleby's MurmurHash3)."""
    h = (h ^ (h >> 16)) * mx.array(0x85EBCA6B, mx.uint32)
    h = (h ^ (h >> 13)) * mx.array(0xC2B2AE35, mx.uint32)
    return h ^ (h >> 16)


def ngram_hash(tokens: Array, order: int, salt: int = 0) -> Array:
    """Return a hash (B, T) uint32 of the last `order` tokens at each position of tokens (B, T).

    Equal n-grams have equal hashes in any row. Before a row stands padding that equals no token. Another salt gives
    hashes that are independent of these.
    """
    T = tokens.shape[1]
    spread = (tokens.astype(mx.uint32) + 1) * mx.array(0x9E3779B1, mx.uint32)
    padded = mx.pad(spread, [(0, 0), (order - 1, 0)])
    h = mx.full(tokens.shape, (order * 0x9E3779B1 + salt * 0x7FEB352D) % 2**32, mx.uint32)
    for first in range(order):
        h = mixed(h + padded[:, first : first + T])
    return h


def ngram_ids(tokens: Array, order: int, rows: int, salt: int = 0) -> Array:
    """Return for each position its row (B, T) int32 in a table of `rows` rows, by a hash of its last `order` tokens."""
    return (ngram_hash(tokens, order, salt) % mx.array(rows, mx.uint32)).astype(mx.int32)


def last_seen(tokens: Array, order: int) -> Array:
    """Return the latest earlier position (B, T) int32 where the same `order` tokens ended in the same row, else -1.

    It sorts hashes that have their positions in the low bits, so that equal n-grams lie side by side in the order of
    their positions. In rows of 2048 tokens 21 bits are left of a hash: one search in a thousand finds another n-gram.
    """
    T = tokens.shape[1]
    bits = max(1, (T - 1).bit_length())
    keys = mx.sort((ngram_hash(tokens, order) << bits) | mx.arange(T, dtype=mx.uint32), axis=1)
    position, ngram = (keys & (2**bits - 1)).astype(mx.int32), keys >> bits
    before = mx.where(ngram[:, 1:] == ngram[:, :-1], position[:, :-1], -1)
    return mx.put_along_axis(mx.full(tokens.shape, -1, mx.int32), position[:, 1:], before, axis=1)
