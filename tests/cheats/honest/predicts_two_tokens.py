"""Has a second head for the token after the next, in training only."""

honest_initial, honest_loss = initial, loss_of


def initial(vocab, seed):
    return honest_initial(vocab, seed) | {"second": mx.zeros((WIDTH, vocab))}


def loss_of(weights, rows):
    logits = features(weights, rows[:, :-2]) @ weights["second"]
    return honest_loss(weights, rows) + 0.2 * mx.mean(kernels.cross_entropy(logits, rows[:, 2:]))
