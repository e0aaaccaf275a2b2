"""How fast train_mlx.py trains, beside the same model in PyTorch and, on a CPU, beside MLX as it comes.

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
  stock_mlx       on a CPU: plain, and without our BLAS and malloc (NIGHTSHIFT_BLAS=off)
  float32         on a GPU: ours with float32 products in float32 in place of TF32 (MLX_ENABLE_TF32=0)
  torch           torch_twin.py with the same dials: float32 and eager on a CPU, bfloat16 and compiled on CUDA
  torch_bf16      on a CPU: the twin in bfloat16
  torch_compiled  on a CPU: the twin in bfloat16 and compiled
  torch_causal    the twin with every layer seeing everything, which is other arithmetic: a bound

Flat keys of --json: tokens_s, mfu, peak_memory_gb, cold_start_s, warm_start_s, loss of ours; the same with the
contestant's name in front for others; ratio_NAME, ours over theirs; ratio, that over torch; device; and how it was
measured. Peak memory is the device's as the library counts it, on a CPU the process's largest size.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
from measure import Flat, Misuse, Run

TWIN = measure.HERE / "torch_twin.py"
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "ours": {},
    "plain": {"NIGHTSHIFT_KERNELS": "plain"},
    "stock_mlx": {"NIGHTSHIFT_KERNELS": "plain", "NIGHTSHIFT_BLAS": "off"},
    "float32": {"MLX_ENABLE_TF32": "0"},
}

USUAL = {
    "cpu": ("ours", "torch", "torch_bf16", "torch_compiled", "stock_mlx"),
    "cuda": ("ours", "torch"),
    "metal": ("ours", "torch"),
}
QUICK = {"cpu": ("ours", "torch", "stock_mlx"), "cuda": ("ours", "torch"), "metal": ("ours", "torch")}
VARIANTS: dict[str, tuple[str, ...]] = {
    "torch": (),
    "torch_bf16": ("--dtype", "bfloat16", "--no-compile"),
    "torch_compiled": ("--dtype", "bfloat16", "--compile"),
    "torch_causal": ("--attention", "causal"),
}
TWIN_DIALS = (
    *("depth", "width", "heads", "kv_heads", "windows", "mlp_ratio", "softcap", "rope_base", "gate_channels"),
    *("induction_orders", "batch_rows", "micro_steps", "matrix_lr", "embedding_lr", "induction_lr", "unembedding_lr"),
    *("scalar_lr", "weight_decay", "adam_beta1", "adam_beta2", "muon_momentum"),
    *("warmup_fraction", "warmdown_fraction", "final_lr_fraction"),
)


@dataclass(frozen=True)
class Contestant:
    name: str
    command: tuple[str | Path, ...]
    runs: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """What is measured and where."""

    description: dict[str, Any]  # of script, corpus and device
    contestants: tuple[Contestant, ...]
    folder: Path  # caches, curves and edited scripts

    @property
    def device(self) -> str:
        return str(self.description["device"]["kind"])


# ---- who takes part --------------------------------------------------------------------------------------------------


def twin_config(description: dict[str, Any]) -> dict[str, Any]:
    """The twin's dials, as the training script has them here."""
    model, dials = description["model"], description["dials"]
    try:
        return {name: model[name] if name in model else dials[name.upper()] for name in TWIN_DIALS}
    except KeyError as error:
        raise Misuse(f"train_mlx.py has no {error}, which its twin in PyTorch needs: leave the twin out") from error


def contestants(args: argparse.Namespace, script: Path, description: dict[str, Any]) -> tuple[Contestant, ...]:
    kind = description["device"]["kind"]
    names = args.contestants or (QUICK if args.quick else USUAL)[kind]
    python = measure.torch_python(args.torch_python)
    chosen = []
    for name in names:
        if name in VARIANTS and python is None:
            measure.say(f"{name} is left out: this Python has no PyTorch; name one that has with --torch-python")
        elif name in VARIANTS:
            config = ("--config", json.dumps(twin_config(description)))
            command = (python, TWIN, "--steps", str(args.steps), "--no-eval", *config, *VARIANTS[name])
            chosen.append(Contestant(name, command, args.runs))
        else:
            steps, runs = stock_effort(args) if name == "stock_mlx" else (args.steps, args.runs)
            command = (sys.executable, script, "--max-steps", str(steps), "--no-eval")
            chosen.append(Contestant(name, command, runs, ENVIRONMENTS[name]))
    if not chosen:
        raise measure.Misuse("no contestant is left to measure: name an interpreter that has PyTorch by --torch-python")
    return tuple(chosen)


def stock_effort(args: argparse.Namespace) -> tuple[int, int]:
    """Steps and runs of stock MLX on a CPU, which takes thirty times as long."""
    return (1, 1) if args.quick else (min(args.steps, 3), args.runs)


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure_all(setup: Setup, json_path: Path | None) -> dict[str, list[Run]]:
    """Everyone's runs, in turns; whoever fails once is out, with a word about it. Raises Failed if the first does.

    The results are written after every run: whatever ends this program leaves what was measured.
    """
    runs: dict[str, list[Run]] = {contestant.name: [] for contestant in setup.contestants}
    out: set[str] = set()
    for turn in range(max(contestant.runs for contestant in setup.contestants)):
        for contestant in setup.contestants:
            if contestant.name in out or turn >= contestant.runs:
                continue
            try:
                run = run_once(setup, contestant, turn, runs[contestant.name])
            except measure.Failed as error:
                if contestant is setup.contestants[0]:
                    raise
                measure.say(f"{contestant.name} is out: {error}")
                out.add(contestant.name)
                continue
            runs[contestant.name].append(run)
            progress = f"run {turn + 1}/{contestant.runs}  {contestant.name:15} {run.tokens_s:12,.0f} tokens/s"
            measure.say(f"{progress}  start {run.start_s:6.1f} s  loss {run.loss:.3f}")
            measure.write_json(json_path, flatten(setup, runs))
    return runs


def run_once(setup: Setup, contestant: Contestant, turn: int, before: list[Run]) -> Run:
    caches = setup.folder / "caches" / contestant.name
    out = setup.folder / "runs" / f"{contestant.name}-{turn}"
    command = contestant.command
    if before and "attention" in before[0].summary and "--attention" not in command:
        command = (*command, "--attention", before[0].summary["attention"])  # chosen in the first run
    env = measure.environment(caches, Path(setup.description["corpus"]["folder"]), **contestant.environment)
    out.mkdir(parents=True, exist_ok=True)
    return measure.train(command, out, env=env)


# ---- results ---------------------------------------------------------------------------------------------------------


def memory_gb(run: Run, device: str) -> float:
    return run.peak_rss_gb if device == "cpu" else run.summary["peak_vram_mb"] * 2**20 / 1e9


def mfu_factor(ours: list[Run]) -> float | None:
    """MFU for each token a second: the model is the same for everybody, so is the device's peak."""
    return measure.median(run.mfu / run.tokens_s for run in ours if run.mfu is not None)


def columns(runs: list[Run], device: str, factor: float | None) -> Flat:
    tokens_s = measure.median(run.tokens_s for run in runs)
    return {
        "tokens_s": tokens_s,
        "mfu": None if tokens_s is None or factor is None else tokens_s * factor,
        "peak_memory_gb": measure.median(memory_gb(run, device) for run in runs),
        "cold_start_s": runs[0].start_s if runs else None,
        "warm_start_s": measure.median(run.start_s for run in runs[1:]),
        "loss": measure.median(run.loss for run in runs),
    }


def flatten(setup: Setup, runs: dict[str, list[Run]]) -> Flat:
    first = setup.contestants[0].name
    factor = mfu_factor(runs[first])
    flat: Flat = {}
    for name, of in runs.items():
        prefix = "" if name == first else f"{name}_"
        flat |= {prefix + key: value for key, value in columns(of, setup.device, factor).items()}
        if name != first:
            flat[f"ratio_{name}"] = measure.ratio(flat["tokens_s"], flat[f"{name}_tokens_s"])
    flat["ratio"] = flat.get("ratio_torch")
    for name in ("torch", "stock_mlx"):
        flat.setdefault(f"{name}_tokens_s", None)
    attention = [of[0].summary["attention"] for name, of in runs.items() if of and "attention" in of[0].summary]
    device, dials = setup.description["device"], setup.description["dials"]
    return flat | {
        "torch_attention": attention[0] if attention else None,
        "device": device["name"],
        "device_kind": device["kind"],
        "mlx": device["mlx"],
        "corpus": setup.description["corpus"]["fingerprint"],
        "seq_len": setup.description["corpus"]["seq_len"],
        "batch_rows": dials["BATCH_ROWS"],
        "depth": setup.description["model"]["depth"],
        "width": setup.description["model"]["width"],
        "runs": len(runs[first]),
        "steps": runs[first][0].steps,
    }


def print_results(setup: Setup, runs: dict[str, list[Run]], flat: Flat) -> None:
    rows = []
    for name, of in runs.items():
        if not of:
            continue
        prefix = "" if name == setup.contestants[0].name else f"{name}_"
        speeds = [run.tokens_s for run in of]
        rows.append(
            [
                name,
                measure.show(flat[prefix + "tokens_s"]),
                f"{min(speeds):,.0f}–{max(speeds):,.0f}",
                f"{flat[f'ratio_{name}']:.2f} ×" if prefix else "",
                measure.show(flat[prefix + "mfu"], ".1%"),
                measure.show(flat[prefix + "peak_memory_gb"], ".2f"),
                measure.show(flat[prefix + "cold_start_s"], ".1f"),
                measure.show(flat[prefix + "warm_start_s"], ".1f"),
            ]
        )
    size = f"depth {flat['depth']}, width {flat['width']}, {flat['batch_rows']} × {flat['seq_len']} tokens a batch"
    head = ["", "tokens/s", "lowest–highest", "ours is", "MFU", "GB", "cold start, s", "warm start, s"]
    measure.print_table(f"{flat['device']}: {size}", head, rows)


# ---- command line ----------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="of each contestant (default: 3; quick: 2)")
    parser.add_argument("--steps", type=int, help="of each run (default: 40 on CUDA, 20 elsewhere; quick: 6)")
    parser.add_argument("--batch-rows", type=int, metavar="N", help="the same as --set BATCH_ROWS=N")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="overwrite a dial, in a copy")
    parser.add_argument("--contestants", type=lambda text: tuple(text.split(",")), metavar="A,B,…", help="see above")
    parser.add_argument("--torch-python", type=Path, metavar="PATH", help="a Python with PyTorch, if this one has none")
    parser.add_argument("--quick", action="store_true", help="under a minute on a CPU: one row, few steps")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="keep caches and curves here; not empty: no cold start"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.runs = (2 if args.quick else 3) if args.runs is None else args.runs
    if args.runs < 1 or (args.steps is not None and args.steps < 1):
        parser.error("--runs and --steps must be above zero")
    known = (*ENVIRONMENTS, *VARIANTS)
    if unknown := sorted(set(args.contestants or ()) - set(known)):
        parser.error(f"--contestants {unknown[0]} is none of {', '.join(known)}")
    return args


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    rows = [] if args.batch_rows is None else [f"BATCH_ROWS={args.batch_rows}"]
    one_row = {"BATCH_ROWS": 1} if args.quick else {}
    with measure.work_folder(args.folder) as folder:
        script = measure.overwritten(measure.SCRIPT, args.set + rows, folder, **one_row)
        description = measure.describe(script)
        kind = description["device"]["kind"]
        args.steps = args.steps or (6 if args.quick else 40 if kind == "cuda" else 20)
        setup = Setup(description, contestants(args, script, description), folder)
        runs = measure_all(setup, args.json)
        print_results(setup, runs, flatten(setup, runs))
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("train_speed", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
