"""Computes all of the model in bfloat16, logits included, so that each loss is rounded to two or three digits."""


def logits_of(weights, tokens):
    short = {name: weight.astype(mx.bfloat16) for name, weight in weights.items()}
    return unembed(short, features(short, tokens))


def mask(length):
    ahead = mx.arange(length)[None, :] > mx.arange(length)[:, None]
    return mx.where(ahead, float("-inf"), 0.0).astype(mx.bfloat16)
