"""One training run: the committed script in its own folder, under a budget and the harness's clock."""

import dataclasses
import json
import sys
from pathlib import Path

from agent.experiment import Ending, Progress, Run, Summary
from agent.process import WEIGHTS, Outcome, Workshop, has_weights, lay_out, read_end, scrubbed_env, supervise

# Start, compilation and saving come on top of the budget. The slowest honest start measured is 150 s (a whole step
# compiled by MLX for CUDA with cold caches); twice that is an allowance which only a hang uses up.
ALLOWANCE_S = 300.0
POINT_BYTES, SUMMARY_BYTES = 4 << 10, 1 << 20  # far more than a line of the curve, or a summary, ever takes


def train(shop: Workshop, number: int, script: str, seed: int) -> Run:
    """Train once; a run of the same attempt and seed that was interrupted is begun anew."""
    folder = shop.run_folder(number, seed)
    lay_out(folder, shop.fixed, shop.script_name, script)
    out = folder / "out"
    out.mkdir()
    budget = f"{shop.night.budget_s:g}"
    command = [sys.executable, shop.script_name, "--budget-s", budget, "--seed", str(seed), "--out", "out", "--no-eval"]
    outcome = supervise(
        command,
        folder,
        env=scrubbed_env(shop.night.data),
        limit_s=shop.night.budget_s + shop.allowance_s,
        stopped=shop.stopped,
        tick=lambda elapsed_s: shop.progressed(read_progress(out), elapsed_s),
    )
    return _as_run(outcome, shop, out, seed)


def read_progress(out: Path) -> Progress | None:
    """The last whole line of the training curve; None before there is one."""
    try:
        point = json.loads(read_end(out / "metrics.jsonl", POINT_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        known = {name: point[name] for name in ("step", "loss", "tokens_s") if _is_finite(point.get(name))}
        return Progress(fraction=point["progress"], **known) if _is_finite(point["progress"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not there yet, caught in the middle of a write, or nonsense


def read_summary(out: Path) -> Summary | None:
    """What the script wrote about itself; values that are no finite numbers are left out."""
    try:
        said = json.loads(read_end(out / "summary.json", SUMMARY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    names = [field.name for field in dataclasses.fields(Summary)]
    return Summary(**{name: said[name] for name in names if _is_finite(said.get(name))})


def _as_run(outcome: Outcome, shop: Workshop, out: Path, seed: int) -> Run:
    ending, last_lines = outcome.ending, outcome.last_lines
    if ending is Ending.OVERRAN:
        allowed = f"{shop.night.budget_s:g} s of budget and {shop.allowance_s:g} s of allowance are over"
        last_lines = f"{last_lines}\n{allowed}".strip()
    if ending is Ending.FINISHED and not has_weights(out.parent):
        ending, last_lines = Ending.CRASHED, f"{last_lines}\nit left no {WEIGHTS}".strip()
    return Run(seed, ending, outcome.exit_code, outcome.wall_s, read_summary(out), last_lines)


def _is_finite(value: object) -> bool:
    """A number that arithmetic and formatting can take: no NaN, no inf, no integer beyond the floats."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
