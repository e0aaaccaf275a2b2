"""train_mlx.py's model and optimizer in PyTorch, written to be a strong and honest opponent in the benchmarks.

    python benchmarks/torch_twin.py --steps 50 [--config JSON] [--depth 8 …] [--out DIR]
    python benchmarks/torch_twin.py --budget-s 300 --out DIR

Same shapes, parameter names, initial distributions, dials, batches, schedule and clock; the same files in DIR. Weights
are float32, activations bfloat16 on a GPU and float32 on a CPU, as in the original. Where PyTorch has a faster way to
the same numbers it is taken: one projection for q, k, v and gates, cuDNN or flash attention, torch.compile for
the loss with its gradients and for the optimizer, TF32 for the Newton-Schulz products, batches copied and steps queued
ahead.

Attention within windows (--attention) has two forms of the same arithmetic, and one that is not the same:
  blocks   queries in blocks of half a window, each against the keys it may see (flash attention, lower-right mask)
  squares  overlapping squares of plain causal attention, the repeated queries dropped: more arithmetic, but cuDNN
           takes it, whose kernels are faster
  causal   the windows ignored: every layer sees everything
auto times `blocks` and `squares` forward and backward at the run's own shape and takes the faster.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import measure

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

try:
    import torch
except ModuleNotFoundError:
    measure.say("torch_twin: this interpreter has no PyTorch: run it with one that has")
    sys.exit(2)

from twin.attention import ATTENTION, choose_attention
from twin.devices import device_name, peak_memory_bytes, prefer_fast_kernels, usual_device
from twin.dials import Dials, read_dials, windows
from twin.model import GPT
from twin.training import Trainer, evaluate, train

import prepare


def run(args: argparse.Namespace, dials: Dials) -> dict[str, Any]:
    start, data = time.perf_counter(), prepare.ensure_data()
    dials = dials.complete(args.device, data.seq_len)
    dials.check()
    dials = replace(dials, attention=choose_attention(dials, data.seq_len, args.device))
    torch.manual_seed(args.seed)
    with torch.device(args.device):
        model = GPT(dials, data.vocab_size, data.seq_len)
    params = sum(p.numel() for p in model.parameters())
    print(
        f"{device_name(args.device)}, PyTorch {torch.__version__}, {params / 1e6:.1f} M parameters, {dials}", flush=True
    )
    trainer = Trainer(model, compiled=args.compile)
    trained = train(trainer, data, args)
    peak_bytes = peak_memory_bytes(args.device)
    val_bpb = None if args.no_eval else evaluate(trainer, data, compiled=args.compile)
    return {
        "val_bpb": val_bpb,
        "training_seconds": round(trained.seconds, 1),
        "total_seconds": round(time.perf_counter() - start, 1),
        "peak_vram_mb": round(peak_bytes / 2**20, 1),
        "mfu_percent": None,
        "total_tokens_M": round(trained.tokens / 1e6, 3),
        "num_steps": trained.steps,
        "num_params_M": round(params / 1e6, 3),
        "depth": dials.depth,
        "attention": dials.attention,
        "dtype": dials.dtype,
        "compile": args.compile,
    }


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, Dials]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, metavar="N", help="stop after N steps if the budget has not ended")
    parser.add_argument("--budget-s", type=float, default=prepare.TIME_BUDGET_S, help="seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order of the data (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write summary.json and metrics.jsonl")
    parser.add_argument("--no-eval", action="store_true", help="do not evaluate")
    parser.add_argument("--device", choices=["cpu", "cuda", "mps"], default=usual_device(), help="(%(default)s)")
    about = "torch.compile for loss and optimizer (default: on a GPU of NVIDIA's)"
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help=about)
    parser.add_argument("--peak-tflops", type=float, help="for mfu, where the device's is not known")
    parser.add_argument("--config", default="{}", metavar="JSON", help="values of the dials below")
    group = parser.add_argument_group("dials, over those of --config")
    for field in fields(Dials):
        kind = {"int": int, "float": float, "str": str}.get(str(field.type), windows)
        options = {"dtype": ("auto", "float32", "bfloat16"), "attention": ("auto", *ATTENTION)}.get(field.name)
        shown = f"(default: {field.default if field.default != () else 'by --depth'})"
        group.add_argument(f"--{field.name.replace('_', '-')}", type=kind, choices=options, help=shown)
    args = parser.parse_args(argv)
    args.compile = args.device == "cuda" if args.compile is None else args.compile
    if not args.budget_s > 0 or (args.steps is not None and args.steps < 1) or args.seed < 0:
        parser.error("--budget-s and --steps must be above zero, --seed not below")
    return args, read_dials(args)


def main(argv: list[str] | None = None) -> int:
    def body() -> int:
        args, dials = parse(argv)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if args.device == "cuda":
                prefer_fast_kernels(stack)
            summary = run(args, dials)
        if args.out:
            (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        print("---")
        for key, value in summary.items():
            print(f"{key + ':':17} {'' if value is None else f'{value:.6f}' if key == 'val_bpb' else value}")
        return 0

    return measure.guarded("torch_twin", body)


if __name__ == "__main__":
    sys.exit(main())
