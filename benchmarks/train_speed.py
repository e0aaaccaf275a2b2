"""How fast train_mlx.py trains: beside plain MLX, and on a CPU beside MLX as it comes and the same model in PyTorch.

    python benchmarks/train_speed.py --quick
    python benchmarks/train_speed.py --runs 3 --steps 40 --set BATCH_ROWS=128 --json speed.json

Every run is a process of the real script (`train_mlx.py --max-steps N --no-eval`). The contestants take turns, ABABAB,
so that a machine that slows down slows all of them. A run's speed is the median over its steps, the first few left
out; a contestant's is the median of its runs, and a ratio is of two such medians.

Start is the time from the start of the process to the start of the first step that trains: imports, reading the
corpus, the weights, and the warm-up step that compiles. It is cold in a contestant's first run, when all caches of
compiled kernels are empty, and warm in the runs after it. The corpus is prepared before.

Contestants (--contestants, the first is what the others are measured against):
  ours            train_mlx.py as it stands, or with the dials of --set
  plain           the same with plain MLX operations in place of our kernels (NIGHTSHIFT_KERNELS=plain)
  float32         on a GPU: ours with float32 products in float32 in place of TF32 (MLX_ENABLE_TF32=0)
  stock_mlx       on a CPU: plain, and without our BLAS and malloc (NIGHTSHIFT_BLAS=off)
  torch           on a CPU: torch_twin.py with the same dials, float32 and eager
  torch_compiled  on a CPU: the twin in bfloat16 and compiled
On a GPU, five_minutes.py has the speed of a peer's own script beside ours.

Flat keys of --json: tokens_s, mfu, peak_memory_gb, cold_start_s, warm_start_s, loss of ours; the same with the
contestant's name in front for others; ratio_NAME, ours over theirs; device; and how it was measured. Peak memory is the
device's as the library counts it, on a CPU the process's largest size. The file is written again after every run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure

TWIN = measure.HERE / "torch_twin.py"
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "ours": {},
    "plain": {"NIGHTSHIFT_KERNELS": "plain"},
    "float32": {"MLX_ENABLE_TF32": "0"},
    "stock_mlx": {"NIGHTSHIFT_KERNELS": "plain", "NIGHTSHIFT_BLAS": "off"},
}
TWINS = {"torch": (), "torch_compiled": ("--dtype", "bfloat16", "--compile")}
USUAL = {"cpu": ("ours", "torch", "torch_compiled", "stock_mlx"), "cuda": ("ours", "plain"), "metal": ("ours", "plain")}


@dataclass(frozen=True)
class Contestant:
    name: str
    command: tuple[str | Path, ...]
    runs: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One training run, from outside and by the files it left."""

    start_s: float  # from the start of the process to the start of the first step that trains
    tokens_s: float  # the median over its steps, the first few left out
    mfu: float | None
    loss: float  # after the last step, smoothed
    memory_gb: float


def twin_config(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the dials by their names in lower case, and the sizes of the model that they make."""
    return {name.lower(): value for name, value in facts["dials"].items()} | facts["model"]


def contestants(args: argparse.Namespace, script: Path, facts: dict[str, Any]) -> list[Contestant]:
    kind, python, chosen = facts["device"]["kind"], measure.torch_python(args.torch_python), []
    for name in args.contestants or USUAL[kind]:
        if name in TWINS and (python is None or kind != "cpu"):
            measure.say(f"{name} is left out: it takes a CPU, and a Python with PyTorch (--torch-python)")
        elif name in TWINS:
            config = ("--config", json.dumps(twin_config(facts)))
            command = (str(python), TWIN, "--steps", str(args.steps), *config, *TWINS[name])
            chosen.append(Contestant(name, command, args.runs))
        else:
            # stock MLX takes thirty times as long on a CPU
            steps, runs = (args.steps, args.runs) if name != "stock_mlx" else (1, 1) if args.quick else (3, args.runs)
            command = (sys.executable, script, "--max-steps", str(steps), "--no-eval")
            chosen.append(Contestant(name, command, runs, ENVIRONMENTS[name]))
    if not chosen:
        raise measure.Misuse("no contestant is left to measure: name an interpreter that has PyTorch by --torch-python")
    return chosen


def train(contestant: Contestant, turn: int, folder: Path, facts: dict[str, Any]) -> Run:
    """Run a training script that writes metrics.jsonl and summary.json, as train_mlx.py does."""
    out, caches = folder / "runs" / f"{contestant.name}-{turn}", folder / "caches" / contestant.name
    out.mkdir(parents=True, exist_ok=True)
    env = measure.fresh_caches(caches, Path(facts["corpus"]["folder"]), **contestant.environment)
    watched = measure.watch([*contestant.command, "--out", out], env=env, cwd=measure.ROOT, limit_s=1200)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    settled, summary = measure.after_the_first_few(metrics), json.loads((out / "summary.json").read_text())
    is_cpu = facts["device"]["kind"] == "cpu"
    return Run(
        start_s=start_seconds(watched, metrics),
        tokens_s=statistics.median(row["tokens_s"] for row in settled),
        mfu=measure.median(row.get("mfu") for row in settled),
        loss=metrics[-1]["loss"],
        memory_gb=watched.peak_rss_gb if is_cpu else summary["peak_vram_mb"] * 2**20 / 1e9,
    )


def start_seconds(watched: measure.Watched, metrics: list[dict[str, float]]) -> float:
    """Return when the line of the first step came, less the training time that it reports."""
    for at, line in watched.lines:
        if line.startswith("step "):
            return at - metrics[0]["t_s"]
    return watched.seconds - metrics[-1]["t_s"]  # it prints no steps: the end of the process is then counted too


def figures(runs: list[Run]) -> measure.Flat:
    return {
        "tokens_s": measure.median(run.tokens_s for run in runs),
        "mfu": measure.median(run.mfu for run in runs),
        "peak_memory_gb": measure.median(run.memory_gb for run in runs),
        "cold_start_s": runs[0].start_s if runs else None,
        "warm_start_s": measure.median(run.start_s for run in runs[1:]),
        "loss": measure.median(run.loss for run in runs),
    }


def flatten(args: argparse.Namespace, facts: dict[str, Any], runs: dict[str, list[Run]]) -> measure.Flat:
    flat: measure.Flat = {}
    for place, (name, each) in enumerate(runs.items()):
        prefix = f"{name}_" if place else ""
        flat |= {prefix + key: value for key, value in figures(each).items()}
        if place:
            flat[f"ratio_{name}"] = measure.ratio(flat["tokens_s"], flat[f"{name}_tokens_s"])
    device, model = facts["device"], facts["model"]
    return flat | {
        "device": device["name"], "device_kind": device["kind"], "mlx": device["mlx"],
        "corpus": facts["corpus"]["fingerprint"], "seq_len": facts["corpus"]["seq_len"],
        "batch_rows": facts["dials"]["BATCH_ROWS"], "depth": model["depth"], "width": model["width"],
        "runs": args.runs, "steps": args.steps,
    }  # fmt: skip


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    """Make everyone's runs, in turns; whoever fails once is out, with a word about it, unless it is the first."""
    script = measure.overwritten(measure.SCRIPT, args.set, folder, **({"BATCH_ROWS": 1} if args.quick else {}))
    facts = measure.describe(script)
    args.steps = args.steps or (6 if args.quick else 40 if facts["device"]["kind"] == "cuda" else 20)
    left = contestants(args, script, facts)
    runs: dict[str, list[Run]] = {contestant.name: [] for contestant in left}
    for turn in range(max(contestant.runs for contestant in left)):
        for contestant in [contestant for contestant in left if turn < contestant.runs]:
            try:
                run = train(contestant, turn, folder, facts)
            except measure.Failed as error:
                if contestant.name == next(iter(runs)):
                    raise
                measure.say(f"{contestant.name} is out: {error}")
                left.remove(contestant)
                continue
            runs[contestant.name].append(run)
            speed = f"{run.tokens_s:12,.0f} tokens/s  start {run.start_s:6.1f} s  loss {run.loss:.3f}"
            measure.say(f"run {turn + 1}/{contestant.runs}  {contestant.name:15} {speed}")
            measure.write_json(args.json, flatten(args, facts, runs))
    return flatten(args, facts, runs)


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    others = [key.removeprefix("ratio_") for key in flat if key.startswith("ratio_")]
    columns = {
        "tokens_s": ("tokens/s", ",.0f"), "mfu": ("MFU", ".1%"), "peak_memory_gb": ("GB", ".2f"),
        "cold_start_s": ("cold start, s", ".1f"), "warm_start_s": ("warm start, s", ".1f"), "loss": ("loss", ".3f"),
    }  # fmt: skip
    size = f"depth {flat['depth']}, width {flat['width']}, {flat['batch_rows']} × {flat['seq_len']} tokens a batch"
    rows = {"": "the first", **{f"{name}_": name for name in others}}
    measure.print_grid(f"{flat['device']}: {size}", flat, rows, columns)
    measure.print_list("Ours over theirs", {name: flat[f"ratio_{name}"] for name in others}, ".2f")


def names_of(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := sorted({*names} - {*ENVIRONMENTS, *TWINS}):
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join((*ENVIRONMENTS, *TWINS))}")
    return names


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=measure.count, help="of each contestant (default: 3; quick: 2)")
    about = "of each run (default: 40 on CUDA, 20 elsewhere; quick: 6)"
    parser.add_argument("--steps", type=measure.count, help=about)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="overwrite a dial, in a copy")
    parser.add_argument("--contestants", type=names_of, metavar="A,B,…", help="see above")
    parser.add_argument("--torch-python", type=Path, metavar="PATH", help="a Python with PyTorch, if this one has none")


PROGRAM = measure.Program(__doc__ or "", compare, print_results, add_options, {"runs": (3, 2)})

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
