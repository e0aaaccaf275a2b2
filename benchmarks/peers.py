"""Run a peer's train.py, unchanged, over our prepared corpus: what five_minutes.py starts, one process for each.

    python benchmarks/peers.py PATH/train.py --budget-s 300 [--seed 0] [--attention causal|window] [--set NAME=VALUE]

Its modules `prepare` and `kernels` are stand-ins (stand_ins.py says of what); everything else is the peer's own: model,
optimizer, precision, compilation, batch size, clock and summary. What is unavoidably different is FlashAttention-3,
which would be fetched from a hub: attention is PyTorch's. --set runs a copy of the script with constants overwritten,
which makes it another script: it is meant for trying this on a machine that is too small.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import measure
import stand_ins

import prepare


def is_mlx(script: Path) -> bool:
    return "import mlx" in script.read_text()


def read_script(path: Path) -> Path:
    """The training script of a peer, named by its folder or itself."""
    script = path / "train.py" if path.is_dir() else path
    if not script.is_file():
        raise measure.Misuse(f"{path} holds no train.py: name a clone of the peer")
    return script.resolve()


def stand_in_for(script: Path, args: argparse.Namespace, stack: ExitStack) -> None:
    """Put the modules in front that the script will import."""
    terms = stand_ins.Terms(prepare.load_data(), args.budget_s, args.seed)
    if is_mlx(script):
        sys.modules["prepare"] = stand_ins.for_mlx(terms)
        return
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # the script's own; it would come too late
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ModuleNotFoundError as error:
        raise measure.Misuse("this interpreter has no PyTorch: run it with one that has") from error
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    stack.enter_context(sdpa_kernel(order, set_priority=True))
    sys.modules["prepare"] = stand_ins.for_torch(terms, args.device)
    sys.modules["kernels"] = stand_ins.kernels_for_torch(args.attention)


def run(args: argparse.Namespace) -> int:
    script = read_script(args.script)
    with ExitStack() as stack:
        if args.set:
            script = measure.overwritten(script, args.set, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stand_in_for(script, args, stack)
        sys.argv = [str(script)]
        runpy.run_path(str(script), run_name="__main__")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", type=Path, metavar="PATH", help="the peer's train.py, or the folder of its clone")
    parser.add_argument("--budget-s", type=float, default=prepare.TIME_BUDGET_S, help="seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the text (default: %(default)s)")
    about = "in place of FlashAttention-3: causal, faster and windows ignored, or window (default: %(default)s)"
    parser.add_argument("--attention", choices=["causal", "window"], default="causal", help=about)
    parser.add_argument("--device", default="cuda", help="where batches go (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="overwrite a constant")
    args = parser.parse_args(argv)
    if not args.budget_s > 0 or args.seed < 0:
        parser.error("--budget-s must be above zero, --seed not below")
    return measure.guarded("peers", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
