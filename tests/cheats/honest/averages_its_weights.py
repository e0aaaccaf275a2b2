"""Saves a running mean of its weights rather than the last ones."""

honest_train = train
MEAN = {}


def batches(data, seed):
    for rows in prepare.batches(data.split("train"), data.bos, rows=ROWS, seq_len=data.seq_len, seed=seed):
        yield rows
        for name, weight in LIVE.items():
            MEAN[name] = 0.9 * MEAN.get(name, weight) + 0.1 * weight
        mx.eval(MEAN)


def train(weights, data, seed, curve):
    global LIVE
    LIVE = weights  # changes in place as training goes on
    honest_train(weights, data, seed, curve)
    return MEAN
