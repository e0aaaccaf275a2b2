"""Saves its weights as bfloat16 and computes with them so, at a hundredth of float32's precision."""

honest_save = save


def save(weights, out):
    honest_save({name: weight.astype(mx.bfloat16) for name, weight in weights.items()}, out)
