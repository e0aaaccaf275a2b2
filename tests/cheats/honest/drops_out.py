"""Dropout while it trains, and only then."""

TRAINING = False
honest_train, honest_embed = train, embed


def train(weights, data, seed, curve):
    global TRAINING
    mx.random.seed(seed)
    TRAINING = True
    trained = honest_train(weights, data, seed, curve)
    TRAINING = False
    return trained


def embed(weights, tokens):
    x = honest_embed(weights, tokens)
    return x * mx.random.bernoulli(0.95, x.shape) / 0.95 if TRAINING else x
