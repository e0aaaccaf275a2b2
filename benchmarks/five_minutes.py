"""How well each predicts after the same time on the same text: train_mlx.py beside its peers.

    python benchmarks/five_minutes.py --peer autoresearch=PATH --peer autoresearch-mlx=PATH --json five.json
    python benchmarks/five_minutes.py --quick

A peer is a clone of karpathy/autoresearch, trevin-creator/autoresearch-mlx or a fork of either. Its train.py runs
unchanged except for the modules that peers.py puts in front: they give it the text that is prepared here, and score it
as we score ourselves, in bits per byte over the same bytes of validation text. FlashAttention-3, which the first
fetches from a hub, is replaced by PyTorch's attention without windows. Model, optimizer, batch size and clock are
each one's own. The clocks differ in a little: ours leaves out a warm-up step that trains nothing, autoresearch its
first 11 steps and autoresearch-mlx its first, which do train.

Each has its own process and, in its first run, empty caches of compiled kernels. Seconds beyond the budget are
everything else that the process took: imports, compilation, evaluation.

Flat keys of --json, medians over the seeds: val_bpb, seconds_beyond (of the first run, which is cold), tokens_M,
tokens_s, peak_memory_gb, training_s of ours; the same with NAME_ in front for peers; ratio_NAME_val_bpb and
ratio_NAME_tokens_s, ours over theirs; budget_s, corpus, device. With --folder a run that has finished there is
not done again: a long comparison may be cut into several calls, and goes on after a failure.
"""

import json
import re
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import measure
import peers
from measure import Count, Figures, Folder, Seconds

from agent.cli.options import read_by
from agent.lab.numbers import whole

ALLOWANCE_S = 900.0  # s beyond the budget, after which a run is ended
OURS = "ours"
Command = tuple[str | Path, ...]  # less budget, seed and output


def contestants(script: Path | None, clones: Sequence[str]) -> dict[str, Command]:
    """Return the commands by name, ours first; script: ours, None where it runs elsewhere."""
    commands: dict[str, Command] = {} if script is None else {OURS: (sys.executable, script)}
    for text in clones:
        name, separator, path = text.partition("=")
        if not separator or not re.fullmatch(r"[\w.-]+", name) or name == OURS:
            raise measure.Misuse(f"--peer {text} is not NAME=PATH: name a clone, as in autoresearch=~/autoresearch")
        commands[name] = (sys.executable, "-c", peers.RUN, peers.read_script(Path(path).expanduser()))
    return commands


def finished(name: str, command: Command, seed: int, budget_s: float, folder: Path, facts: Any) -> Figures:
    """Return the figures of a run, which is made if it has not been with the same settings."""
    own = folder / "runs" / f"{name}-{seed}"
    settings = {"budget_s": budget_s, "corpus": facts["corpus"]["fingerprint"], "command": list(map(str, command))}
    with suppress(FileNotFoundError, ValueError):
        record = json.loads((own / "result.json").read_text(encoding="utf-8"))
        if record["settings"] == settings:
            return dict(record["figures"])
    own.mkdir(parents=True, exist_ok=True)
    caches = folder / "caches" / name
    is_cold = not caches.exists()
    env = measure.fresh_caches(caches, Path(facts["corpus"]["folder"]))
    words = [*command, "--budget-s", f"{budget_s:g}", "--seed", str(seed)]
    words += ["--out", str(own)] if name == OURS else []
    watched = measure.watch(words, env=env, cwd=measure.ROOT, limit_s=budget_s + ALLOWANCE_S)
    (own / "log.txt").write_text(watched.text + "\n", encoding="utf-8")
    figures = read_figures(watched, budget_s, is_cpu=facts["device"]["kind"] == "cpu", is_cold=is_cold)
    (own / "result.json").write_text(
        json.dumps({"settings": settings, "figures": figures}, indent=2) + "\n", encoding="utf-8"
    )
    return figures


def read_figures(watched: measure.Watched, budget_s: float, *, is_cpu: bool, is_cold: bool) -> Figures:
    """Read what it printed: the ancestor's summary after a line ---, and the speed of every step shown."""
    summary = dict(re.findall(r"^(\w+): +(\S+)$", watched.text.rsplit("---\n", 1)[-1], re.MULTILINE))
    rates = re.findall(r"(?:tok/sec: ([\d,]+)|([\d,]+) tokens/s)", watched.text)
    tokens_s = [float((theirs or ours).replace(",", "")) for theirs, ours in rates]
    try:
        return {
            "val_bpb": float(summary["val_bpb"]),
            **({"seconds_beyond": watched.seconds - budget_s} if is_cold else {}),
            "tokens_M": float(summary["total_tokens_M"]),  # the steps that its clock leaves out included
            "tokens_s": statistics.median(measure.after_the_first_few(tokens_s)) if tokens_s else None,
            "peak_memory_gb": watched.peak_rss_gb if is_cpu else float(summary["peak_vram_mb"]) * 2**20 / 1e9,
            "training_s": float(summary["training_seconds"]),  # s on the run's own clock
        }
    except KeyError as error:
        raise measure.Failed(f"it ended well but printed no {error}; its end: {watched.text[-500:]}") from error


@measure.program(budget_s=5.0)
def main(
    *,
    folder: Folder,
    budget_s: Seconds = 300.0,
    peer: Sequence[str] = (),
    no_ours: bool = False,
    seeds: Count = 1,
    first_seed: Annotated[int, read_by(whole(0))] = 0,
    set: Sequence[str] = (),
) -> measure.Flat:
    """Run everyone with the first seed, then everyone with the next.

    Args:
        budget_s: seconds of training
        peer: NAME=PATH, a clone; several may be given
        no_ours: the peers alone, as where ours runs on another device meanwhile
        seeds: runs of each
        first_seed: of these runs, as where earlier ones were made on another machine
        set: NAME=VALUE, a dial of ours that is overwritten
    """
    script = measure.overwritten(measure.SCRIPT, set, folder)
    commands, facts = contestants(None if no_ours else script, peer), measure.describe(script)
    if not commands:
        raise measure.Misuse("--no-ours without --peer leaves no script to run: name a clone")
    results: dict[str, list[Figures]] = {name: [] for name in (OURS, *commands)}  # ours is what ratios are of
    for seed in range(first_seed, first_seed + seeds):
        for name, command in commands.items():
            results[name].append(finished(name, command, seed, budget_s, folder, facts))
            measure.say(f"seed {seed}  {name:18} val_bpb {results[name][-1]['val_bpb']:.4f}")
    return measure.side_by_side(results, ["val_bpb", "tokens_s"]) | measure.place(facts) | {"budget_s": budget_s}


if __name__ == "__main__":
    raise SystemExit(main())
