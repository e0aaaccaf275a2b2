"""Has every token choose two of four experts."""

EXPERTS, CHOSEN = 4, 2
honest_initial = initial


def initial(vocab, seed):
    keys = mx.random.split(mx.random.key(seed + 99), 3)
    weights = honest_initial(vocab, seed)
    weights["router"] = 0.15 * mx.random.normal((WIDTH, EXPERTS), key=keys[0])
    weights["up"] = 0.15 * mx.random.normal((EXPERTS, WIDTH, 2 * WIDTH), key=keys[1])
    weights["down"] = 0.1 * mx.random.normal((EXPERTS, 2 * WIDTH, WIDTH), key=keys[2])
    return weights


def features(weights, tokens):
    x = embed(weights, tokens)
    x = x + attend(weights, norm(x))
    h = norm(x)[:, None]  # (B, 1, T, C)
    scores = h @ weights["router"]  # (B, 1, T, E)
    least = mx.sort(scores, axis=-1)[..., -CHOSEN, None]
    gates = mx.softmax(mx.where(scores >= least, scores, float("-inf")), axis=-1)
    each = mx.maximum(h @ weights["up"], 0) @ weights["down"]  # (B, E, T, C)
    return norm(x + mx.sum(gates[:, 0].swapaxes(1, 2)[..., None] * each, axis=1))
