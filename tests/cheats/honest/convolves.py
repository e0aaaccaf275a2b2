"""A causal convolution over eight tokens in place of attention."""

honest_initial = initial


def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"taps": mx.random.normal((WIDTH, 8, 1), scale=0.3, key=mx.random.key(seed))}


def attend(weights, x):
    padded = mx.pad(x, ((0, 0), (7, 0), (0, 0)))
    return mx.conv1d(padded, weights["taps"], groups=WIDTH) @ weights["mix"]
