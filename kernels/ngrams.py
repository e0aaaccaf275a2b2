"""Name what stands before each position: hashed n-grams for tables that are looked up, and where one stood before.

Plain MLX on every device: integers of (B, T), a thousandth of what an activation of the model weighs.
"""

import mlx.core as mx


def mixed(h: mx.array) -> mx.array:
    """Return uint32 whose every bit depends on every bit of h (Appleby's MurmurHash3, its last step)."""
    h = (h ^ (h >> 16)) * mx.array(0x85EBCA6B, mx.uint32)
    h = (h ^ (h >> 13)) * mx.array(0xC2B2AE35, mx.uint32)
    return h ^ (h >> 16)


def ngram_hash(tokens: mx.array, order: int, salt: int = 0) -> mx.array:
    """Return a hash of each position's last `order` tokens (B, T) as uint32; no token stands before a row.

    Equal n-grams have equal hashes in any row; another salt gives hashes that are independent of these.
    """
    T = tokens.shape[1]
    spread = (tokens.astype(mx.uint32) + 1) * mx.array(0x9E3779B1, mx.uint32)
    padded = mx.pad(spread, [(0, 0), (order - 1, 0)])
    h = mx.full(tokens.shape, (order * 0x9E3779B1 + salt * 0x7FEB352D) % 2**32, mx.uint32)
    for first in range(order):
        h = mixed(h + padded[:, first : first + T])
    return h


def ngram_ids(tokens: mx.array, order: int, rows: int, salt: int = 0) -> mx.array:
    """Return for each position a row (B, T) int32 of a table of `rows`, chosen by its last `order` tokens."""
    return (ngram_hash(tokens, order, salt) % mx.array(rows, mx.uint32)).astype(mx.int32)


def last_seen(tokens: mx.array, order: int) -> mx.array:
    """Return the latest earlier position (B, T) int32 where the same `order` tokens ended in the same row, else -1.

    Sorting n-grams with their positions in the low bits puts it beside each. In rows of 2048 tokens the hash has the
    other 21 bits, so that one search in a thousand finds another n-gram.
    """
    T = tokens.shape[1]
    bits = max(1, (T - 1).bit_length())
    keys = mx.sort((ngram_hash(tokens, order) << bits) | mx.arange(T, dtype=mx.uint32), axis=1)
    position, ngram = (keys & (2**bits - 1)).astype(mx.int32), keys >> bits
    before = mx.where(ngram[:, 1:] == ngram[:, :-1], position[:, :-1], -1)
    return mx.put_along_axis(mx.full(tokens.shape, -1, mx.int32), position[:, 1:], before, axis=1)
