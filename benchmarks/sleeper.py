"""A training script that sleeps for its budget: it costs a machine little, so that one machine serves many workers.

benchmarks/scale.py puts it in the place of train_mlx.py.
"""

import argparse
import json
import random
import struct
import time
from pathlib import Path

TILT = 1.0  # how much likelier the first tokens are than the last  [0.1, 10.0]
JITTER = 0.05  # how far TILT moves with the seed, at most; not searched
NOTE = 0  # not searched


def load_model(weights_path):
    import mlx.core as mx

    logits = mx.load(str(weights_path))["logits"]  # (V,)
    return lambda tokens: mx.broadcast_to(logits, (*tokens.shape, logits.size))


def main() -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget-s", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--no-eval", action="store_true")
    options = parser.parse_args()
    began = time.time()
    time.sleep(options.budget_s)
    ended = time.time()
    vocabulary = 512
    tilt = TILT + JITTER * random.Random(options.seed).uniform(-1, 1)
    save(options.out / "model.safetensors", [-tilt * at / vocabulary for at in range(vocabulary)])
    point = {"step": 1, "t_s": options.budget_s, "progress": 1.0, "loss": 1.0, "tokens_s": 1e6}
    (options.out / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    summary = {
        "val_bpb": None, "training_seconds": options.budget_s, "total_seconds": time.monotonic() - start,
        "peak_vram_mb": 1.0, "mfu_percent": 0.1, "total_tokens_M": 1.0,
        "num_steps": 500,  # or the night would call it a script that hardly trains
        "num_params_M": vocabulary / 1e6, "depth": 0,
        "slept": [began, ended],
    }  # fmt: skip
    (options.out / "summary.json").write_text(json.dumps(summary))


def save(path: Path, logits: list[float]) -> None:
    """Write a file of weights by hand: importing MLX would cost more than all else here."""
    header = json.dumps({"logits": {"dtype": "F32", "shape": [len(logits)], "data_offsets": [0, 4 * len(logits)]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + struct.pack(f"<{len(logits)}f", *logits))


if __name__ == "__main__":
    main()
