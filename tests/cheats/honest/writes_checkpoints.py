"""Leaves a checkpoint every eight steps and a notebook of its own beside its weights."""

honest_train = train


def batches(data, seed):
    Path("out/checkpoints").mkdir()
    Path("tmp/notes.txt").write_text("a note of its own")
    rows = prepare.batches(data.split("train"), data.bos, rows=ROWS, seq_len=data.seq_len, seed=seed)
    for step, some in enumerate(rows):
        if step % 8 == 0:
            mx.save_safetensors(f"out/checkpoints/{step}.safetensors", LIVE)
        yield some


def train(weights, data, seed, curve):
    global LIVE
    LIVE = weights
    return honest_train(weights, data, seed, curve)
