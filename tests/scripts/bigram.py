"""Train a table of bigrams with every function of the real script that is measured, in a millisecond a step."""

import argparse
import json
import time
from pathlib import Path

import mlx.core as mx

import prepare

ROWS = 2
COMPILE = True


class Bigram:
    def __init__(self, table: mx.array) -> None:
        self.table = table  # (V, V)

    def __call__(self, tokens: mx.array) -> mx.array:
        return self.table[tokens]  # (B, T, V)


def load_model(weights_path: str) -> Bigram:
    return Bigram(mx.load(str(weights_path))["table"])


class MuonAdamW:
    def update(self, table: mx.array, gradient: mx.array) -> mx.array:
        return table - gradient


def make_step(optimizer: MuonAdamW):
    def loss_of(table: mx.array, rows: mx.array) -> mx.array:
        logits = Bigram(table)(rows[:, :-1])
        return mx.mean(mx.logsumexp(logits, -1) - mx.take_along_axis(logits, rows[:, 1:, None], -1)[..., 0])

    def update(table: mx.array, rows: mx.array) -> tuple[mx.array, mx.array]:
        loss, gradient = mx.value_and_grad(loss_of)(table, rows)
        return optimizer.update(table, gradient), loss

    return mx.compile(update) if COMPILE else update


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-eval", action="store_true")
    parser.add_argument("--max-steps", type=int, default=5)  # which end the run, whatever the budget
    options = parser.parse_args()
    data = prepare.load_data(verify=False)
    table, step = mx.zeros((data.vocab_size, data.vocab_size)), make_step(MuonAdamW())
    batches = prepare.batches(data.split("train"), data.bos, rows=ROWS, seq_len=data.seq_len, seed=options.seed)
    mx.eval(step(table, mx.array(next(batches))))  # compiles
    start = time.perf_counter()
    with (options.out / "metrics.jsonl").open("w") as curve:
        for count in range(1, options.max_steps + 1):
            table, loss = step(table, mx.array(next(batches)))
            point = {"step": count, "loss": loss.item(), "t_s": time.perf_counter() - start, "mfu": 0.25}
            point["tokens"] = count * ROWS * data.seq_len
            curve.write(json.dumps(point) + "\n")
    mx.save_safetensors(str(options.out / "model.safetensors"), {"table": table})
    if not options.no_eval:
        print(prepare.evaluate_bpb(Bigram(table), data))


if __name__ == "__main__":
    main()
