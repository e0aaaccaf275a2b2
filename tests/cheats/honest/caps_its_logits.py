"""Keeps its logits within ±15."""

honest_unembed = unembed


def unembed(weights, x):
    return 15.0 * mx.tanh(honest_unembed(weights, x) / 15.0)
