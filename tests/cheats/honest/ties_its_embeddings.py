"""Reads and writes tokens with one matrix."""

honest_initial = initial


def initial(vocab, seed):
    weights = honest_initial(vocab, seed)
    del weights["head"]
    return weights


def unembed(weights, x):
    return 0.15 * x @ weights["embed"].T
