"""Looks up a vector for the last three tokens, by their hash."""

BUCKETS = 4096
honest_initial, honest_embed = initial, embed


def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"trigrams": mx.zeros((BUCKETS, WIDTH))}


def embed(weights, tokens):
    padded = mx.pad(tokens, ((0, 0), (2, 0)))
    hashed = (padded[:, 2:] * 10007 + padded[:, 1:-1] * 101 + padded[:, :-2]) % BUCKETS
    return honest_embed(weights, tokens) + weights["trigrams"][hashed]
