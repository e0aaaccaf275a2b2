"""Computes norms and products with the project's own kernels, too."""


def norm(x):
    return kernels.residual_norm(x)[1]


def unembed(weights, x):
    return kernels.linear(x, weights["head"].T)
