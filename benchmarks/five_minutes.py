"""How well each predicts after the same time on the same text: train_mlx.py beside its peers.

    python benchmarks/five_minutes.py --peer autoresearch=PATH --peer autoresearch-mlx=PATH --json five.json
    python benchmarks/five_minutes.py --quick

A peer is a clone of karpathy/autoresearch, trevin-creator/autoresearch-mlx or a fork of either. Its train.py runs
unchanged except for the modules that peers.py puts in front: they give it the text that is prepared here, and score it
as we score ourselves, in bits per byte over the same bytes of validation text. FlashAttention-3, which the first
fetches from a hub, is replaced by PyTorch's attention (--peer-attention). Model, optimizer, batch size and clock are
each one's own. The clocks differ in a little: ours leaves out a warm-up step that trains nothing, autoresearch its
first 11 steps and autoresearch-mlx its first, which do train.

Each has its own process and, in its first run, empty caches of compiled kernels. Seconds beyond the budget are
everything else that the process took: imports, compilation, evaluation.

Flat keys of --json: val_bpb (the mean over seeds), val_bpb_std, seconds_beyond (of the first run, which is cold),
tokens_M, tokens_s, peak_memory_gb, training_s of ours; the same with NAME_ in front for peers; ratio_NAME_val_bpb and
ratio_NAME_tokens_s, ours over theirs; budget_s, seeds, corpus, device. The file is written again after every run, and
with --folder a run that has finished there is not done again: a long comparison may be cut into several calls.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measure
from measure import Failed, Flat, Misuse, Watched

ALLOWANCE_S = 900.0  # beyond the budget, after which a run is ended


@dataclass(frozen=True)
class Contestant:
    name: str
    command: tuple[str | Path, ...]  # less budget, seed and output

    @property
    def prefix(self) -> str:
        return "" if self.name == "ours" else self.name.replace("-", "_") + "_"


@dataclass(frozen=True)
class Result:
    """One finished run."""

    val_bpb: float
    wall_s: float
    training_s: float  # on its own clock
    seconds_beyond: float
    tokens: float  # trained on, the steps that its clock leaves out included
    tokens_s: float | None  # the median over the steps that it reports
    peak_memory_gb: float


@dataclass(frozen=True)
class Setup:
    description: dict[str, Any]
    contestants: tuple[Contestant, ...]
    budget_s: float
    seeds: tuple[int, ...]
    folder: Path

    @property
    def device(self) -> str:
        return str(self.description["device"]["kind"])


# ---- who takes part --------------------------------------------------------------------------------------------------


def contestants(args: argparse.Namespace, script: Path) -> tuple[Contestant, ...]:
    import peers

    chosen = [] if args.no_ours else [Contestant("ours", (sys.executable, script))]
    for text in args.peer:
        name, separator, path = text.partition("=")
        if not separator or not re.fullmatch(r"[\w.-]+", name) or name == "ours":
            raise Misuse(f"--peer {text} is not NAME=PATH: name a clone, as in autoresearch=~/autoresearch")
        peer = peers.read_script(Path(path).expanduser())
        python = Path(sys.executable) if peers.is_mlx(peer) else measure.torch_python(args.torch_python)
        if python is None:
            measure.say(f"{name} is left out: this Python has no PyTorch; name one that has with --torch-python")
            continue
        adapter = measure.HERE / "peers.py"
        chosen.append(Contestant(name, (python, adapter, peer, "--attention", args.peer_attention)))
    if not chosen:
        raise Misuse("nothing is left to be measured: name a --peer that can run here, or leave out --no-ours")
    return tuple(chosen)


# ---- one run ---------------------------------------------------------------------------------------------------------


def run_once(setup: Setup, contestant: Contestant, seed: int) -> Result:
    folder = setup.folder / "runs" / f"{contestant.name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    env = measure.environment(setup.folder / "caches" / contestant.name, Path(setup.description["corpus"]["folder"]))
    command = [*contestant.command, "--budget-s", f"{setup.budget_s:g}", "--seed", str(seed)]
    if contestant.name == "ours":
        command += ["--out", str(folder)]
    watched = measure.watch(command, env=env, cwd=measure.ROOT, limit_s=setup.budget_s + ALLOWANCE_S)
    (folder / "log.txt").write_text(watched.text + "\n")
    return read_result(watched, setup)


def read_result(watched: Watched, setup: Setup) -> Result:
    """From what it printed: the ancestor's summary after a line ---, and the speed of every step shown."""
    summary = dict(re.findall(r"^(\w+): +(\S+)$", watched.text.rsplit("---\n", 1)[-1], re.MULTILINE))
    rates = re.findall(r"(?:tok/sec: ([\d,]+)|([\d,]+) tokens/s)", watched.text)
    tokens_s = [float((theirs or ours).replace(",", "")) for theirs, ours in rates]
    try:
        return Result(
            val_bpb=float(summary["val_bpb"]),
            wall_s=watched.seconds,
            training_s=float(summary["training_seconds"]),
            seconds_beyond=watched.seconds - setup.budget_s,
            tokens=1e6 * float(summary["total_tokens_M"]),
            tokens_s=statistics.median(measure.after_the_first_few(tokens_s)) if tokens_s else None,
            peak_memory_gb=watched.peak_rss_gb
            if setup.device == "cpu"
            else float(summary["peak_vram_mb"]) * 2**20 / 1e9,
        )
    except KeyError as error:
        raise Failed(f"it ended well but printed no {error}; its last lines: {watched.text[-500:]}") from error


def terms(setup: Setup, contestant: Contestant) -> dict[str, Any]:
    """What must be equal for a finished run to be used again."""
    command = [str(part) for part in contestant.command]
    return {"budget_s": setup.budget_s, "corpus": setup.description["corpus"]["fingerprint"], "command": command}


def finished(setup: Setup, contestant: Contestant, seed: int) -> Result | None:
    try:
        record = json.loads((setup.folder / "runs" / f"{contestant.name}-{seed}" / "result.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return Result(**record["result"]) if record["terms"] == terms(setup, contestant) else None


def remember(setup: Setup, contestant: Contestant, seed: int, result: Result) -> None:
    record = {"terms": terms(setup, contestant), "result": asdict(result)}
    path = setup.folder / "runs" / f"{contestant.name}-{seed}" / "result.json"
    path.write_text(json.dumps(record, indent=2) + "\n")


# ---- all of them -----------------------------------------------------------------------------------------------------


def compare(setup: Setup, json_path: Path | None) -> dict[str, list[Result]]:
    """Everyone with the first seed, then everyone with the next; one that fails is out, with a word about it."""
    results: dict[str, list[Result]] = {contestant.name: [] for contestant in setup.contestants}
    out: set[str] = set()
    for seed in setup.seeds:
        for contestant in setup.contestants:
            if contestant.name in out:
                continue
            try:
                result = finished(setup, contestant, seed) or run_once(setup, contestant, seed)
            except Failed as error:
                measure.say(f"{contestant.name} is out: {error}")
                out.add(contestant.name)
                continue
            remember(setup, contestant, seed, result)
            results[contestant.name].append(result)
            beyond = f"{result.seconds_beyond:.0f} s beyond {setup.budget_s:g}"
            measure.say(f"seed {seed}  {contestant.name:18} val_bpb {result.val_bpb:.4f}  {beyond}")
            measure.write_json(json_path, flatten(setup, results))
    if len(out) == len(setup.contestants):
        raise Failed("none of them ran to its end; what each said is above")
    return results


def columns(results: list[Result]) -> Flat:
    scores = [result.val_bpb for result in results]
    return {
        "val_bpb": statistics.fmean(scores) if scores else None,
        "val_bpb_std": statistics.stdev(scores) if len(scores) > 1 else None,
        "seconds_beyond": results[0].seconds_beyond if results else None,
        "tokens_M": measure.median(result.tokens / 1e6 for result in results),
        "tokens_s": measure.median(result.tokens_s for result in results),
        "peak_memory_gb": measure.median(result.peak_memory_gb for result in results),
        "training_s": measure.median(result.training_s for result in results),
    }


def flatten(setup: Setup, results: dict[str, list[Result]]) -> Flat:
    flat: Flat = {}
    for contestant in setup.contestants:
        flat |= {contestant.prefix + key: value for key, value in columns(results[contestant.name]).items()}
    for contestant in setup.contestants:
        for key in ("val_bpb", "tokens_s"):
            if contestant.prefix and "val_bpb" in flat:
                flat[f"ratio_{contestant.prefix}{key}"] = measure.ratio(flat[key], flat[contestant.prefix + key])
    device = setup.description["device"]
    return flat | {
        "budget_s": setup.budget_s,
        "seeds": len(setup.seeds),
        "corpus": setup.description["corpus"]["fingerprint"],
        "seq_len": setup.description["corpus"]["seq_len"],
        "device": device["name"],
        "device_kind": device["kind"],
        "mlx": device["mlx"],
    }


def print_results(setup: Setup, flat: Flat) -> None:
    rows = []
    for contestant in setup.contestants:
        of = {key: flat[contestant.prefix + key] for key in columns([])}
        if of["val_bpb"] is None:
            continue
        spread = "" if of["val_bpb_std"] is None else f" ± {of['val_bpb_std']:.4f}"
        shown = [
            f"{of['val_bpb']:.4f}{spread}",
            measure.show(flat.get(f"ratio_{contestant.prefix}val_bpb"), ".3f") if contestant.prefix else "",
            measure.show(of["seconds_beyond"], ".1f"),
            measure.show(of["tokens_M"], ",.1f"),
            measure.show(of["tokens_s"]),
            measure.show(of["peak_memory_gb"], ".2f"),
        ]
        rows.append([contestant.name, *shown])
    seeds = "one seed" if len(setup.seeds) == 1 else f"{len(setup.seeds)} seeds"
    head = ["", "bits per byte", "ours / theirs", "s beyond, cold", "M tokens", "tokens/s", "GB"]
    measure.print_table(f"{flat['device']}: {setup.budget_s:g} s of training, {seeds}", head, rows)


# ---- command line ----------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-s", type=float, help="seconds of training (default: 300; quick: 5)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH", help="a clone; may be repeated")
    about = "in place of FlashAttention-3: causal, faster and windows ignored, or window (default: %(default)s)"
    parser.add_argument("--peer-attention", choices=["causal", "window"], default="causal", help=about)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="overwrite a dial of ours")
    parser.add_argument("--no-ours", action="store_true", help="the peers alone")
    parser.add_argument("--torch-python", type=Path, metavar="PATH", help="a Python with PyTorch, if this one has none")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep logs, curves and caches, and go on from them")
    parser.add_argument("--quick", action="store_true", help="five seconds of training: under a minute on a CPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.budget_s = (5.0 if args.quick else 300.0) if args.budget_s is None else args.budget_s
    if not args.budget_s > 0 or args.seeds < 1:
        parser.error("--budget-s and --seeds must be above zero")
    return args


def run(args: argparse.Namespace) -> int:
    measure.check_writable(args.json)
    with measure.work_folder(args.folder) as folder:
        script = measure.overwritten(measure.SCRIPT, args.set, folder)
        chosen = contestants(args, script)
        description = measure.describe(script)
        setup = Setup(description, chosen, args.budget_s, tuple(range(args.seeds)), folder)
        flat = flatten(setup, compare(setup, args.json))
        print_results(setup, flat)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("five_minutes", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
