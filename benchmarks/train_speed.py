"""How fast train_mlx.py trains, beside itself with plain MLX, and on a CPU beside MLX as it comes.

    python benchmarks/train_speed.py --quick
    python benchmarks/train_speed.py --runs 3 --steps 40 --set BATCH_ROWS=128 --json speed.json

Every run is a process of the real script (`train_mlx.py --max-steps N --no-eval`). The contestants take turns, ABABAB,
so that a machine that slows down slows all of them. A run's speed is the median over its steps, the first few left
out; a contestant's is the median of its runs, and a ratio is of two such medians.

Start is the time from the start of the process to the start of the first step that trains: imports, reading the
corpus, the weights, and the warm-up step that compiles. It is cold in a contestant's first run, when all caches of
compiled kernels are empty, and warm in the runs after it. The corpus is prepared before.

Contestants (--contestants, the first is what the others are measured against):
  ours       train_mlx.py as it stands, or with the dials of --set
  plain      the same with plain MLX operations in place of our kernels (NIGHTSHIFT_KERNELS=plain)
  float32    on a GPU: ours with float32 products in float32 in place of TF32 (MLX_ENABLE_TF32=0)
  stock_mlx  on a CPU: plain, and without our BLAS and malloc (NIGHTSHIFT_BLAS=off); it takes thirty times as long
five_minutes.py has the speed of a peer's own script beside ours.

Flat keys of --json: tokens_s, mfu, peak_memory_gb, cold_start_s, warm_start_s, loss of ours; the same with the
contestant's name in front for others; ratio_NAME_tokens_s, ours over theirs; device and corpus; sizes. Peak
memory is the device's as the library counts it, on a CPU the process's largest size.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import measure
from measure import Count, Figures, Folder

CONTESTANTS: dict[str, dict[str, str]] = {  # name → its environment
    "ours": {},
    "plain": {"NIGHTSHIFT_KERNELS": "plain"},
    "float32": {"MLX_ENABLE_TF32": "0"},
    "stock_mlx": {"NIGHTSHIFT_KERNELS": "plain", "NIGHTSHIFT_BLAS": "off"},
}


def train(name: str, turn: int, folder: Path, script: Path, facts: dict[str, Any], steps: int) -> Figures:
    """Run the script as this contestant, and return the figures of its metrics.jsonl and summary.json."""
    out = folder / "runs" / f"{name}-{turn}"
    out.mkdir(parents=True, exist_ok=True)
    env = measure.fresh_caches(folder / "caches" / name, Path(facts["corpus"]["folder"]), **CONTESTANTS[name])
    command: list[str | Path] = [sys.executable, script, "--max-steps", str(steps), "--no-eval", "--out", out]
    watched = measure.watch(command, env=env, cwd=measure.ROOT, limit_s=1200)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    settled, summary = (
        measure.after_the_first_few(metrics),
        json.loads((out / "summary.json").read_text(encoding="utf-8")),
    )
    is_cpu = facts["device"]["kind"] == "cpu"
    return {
        "tokens_s": measure.median(row["tokens_s"] for row in settled),
        "mfu": measure.median(row.get("mfu") for row in settled),
        "peak_memory_gb": watched.peak_rss_gb if is_cpu else summary["peak_vram_mb"] * 2**20 / 1e9,
        "warm_start_s" if turn else "cold_start_s": start_seconds(watched, metrics),
        "loss": metrics[-1]["loss"],  # smoothed
    }


def start_seconds(watched: measure.Watched, metrics: list[dict[str, float]]) -> float:
    """Return when the line of the first step came, less the training time that it reports."""
    for at, line in watched.lines:
        if line.startswith("step "):
            return at - metrics[0]["t_s"]
    return watched.seconds - metrics[-1]["t_s"]  # a run without steps: the end of the process is counted, too


@measure.program(runs=2, steps=6, set=["BATCH_ROWS=1"])
def main(
    *,
    folder: Folder,
    runs: Count = 3,
    steps: Count = 20,
    set: Sequence[str] = (),
    contestants: Sequence[Literal["ours", "plain", "float32", "stock_mlx"]] = (),
) -> measure.Flat:
    """Make everyone's runs, in turns.

    Args:
        runs: of each contestant
        steps: of each run
        set: NAME=VALUE, a dial that is overwritten, in a copy
        contestants: see above (default: all that this device has)
    """
    script = measure.overwritten(measure.SCRIPT, set, folder)
    facts = measure.describe(script)
    names = contestants or ("ours", "plain", *(("stock_mlx",) if facts["device"]["kind"] == "cpu" else ()))
    made: dict[str, list[Figures]] = {name: [] for name in names}
    for turn in range(runs):
        for name in names:
            made[name].append(train(name, turn, folder, script, facts, min(steps, 3) if name == "stock_mlx" else steps))
            measure.say(f"run {turn + 1}/{runs}  {name:15} {made[name][-1]['tokens_s']:12,.0f} tokens/s")
    model = facts["model"]
    sizes = {"batch_rows": facts["dials"]["BATCH_ROWS"], "depth": model["depth"], "width": model["width"]}
    return measure.side_by_side(made, ["tokens_s"]) | measure.place(facts) | sizes


if __name__ == "__main__":
    raise SystemExit(main())
