"""One training run: the committed script in its own box, under a budget and the harness's clock."""

import dataclasses
import json
import sys
from pathlib import Path

from agent.experiment import Ending, History, Progress, Run, Summary
from agent.process import Outcome
from agent.workshop import WEIGHTS, Workshop, has_weights, read_end

# Start, compilation and saving come on top of the budget. The slowest honest start measured is 150 s (a whole step
# compiled by MLX for CUDA with cold caches); attempt 0 gets twice that, which only a hang uses up.
FIRST_ALLOWANCE_S = 300.0
# What attempt 0 needed is known then, and what others get is not much more: beyond it a script would be training on.
ALLOWANCE_FACTOR, LEAST_ALLOWANCE_S, ALLOWANCE_OF_BUDGET = 1.5, 10.0, 0.05
POINT_BYTES, SUMMARY_BYTES = 4 << 10, 1 << 20  # far more than a line of the curve, or a summary, ever takes


def train(shop: Workshop, number: int, script: str, seed: int, allowance_s: float) -> Run:
    """Train once; a run of the same attempt and seed that was interrupted is begun anew."""
    folder = shop.run_folder(number, seed)
    run = train_in(shop, folder, script, seed, shop.night.budget_s, allowance_s)
    if number == 0 and run.ending is Ending.FINISHED:
        shop.keep_warm(folder)
    shop.drop_temporary(folder)
    return run


def train_in(shop: Workshop, folder: Path, script: str, seed: int, budget_s: float, allowance_s: float) -> Run:
    """Train in a folder that is laid out anew."""
    shop.lay_out(folder, script)
    out = folder / "out"
    out.mkdir()
    options = ["--budget-s", f"{budget_s:g}", "--seed", str(seed), "--out", "out", "--no-eval"]
    command = [sys.executable, shop.script_name, *options]
    outcome = shop.call(command, folder, budget_s + allowance_s, progress=lambda: read_progress(out))
    return _as_run(outcome, budget_s, allowance_s, out, seed)


def learnt_allowance_s(history: History, budget_s: float) -> float:
    """What a run may take beyond its budget, from what attempt 0 took by the harness's clock."""
    beyond_s = [run.wall_s - budget_s for run in history[0].done_runs if run.ending is Ending.FINISHED]
    if not beyond_s:
        return FIRST_ALLOWANCE_S
    return max(LEAST_ALLOWANCE_S, ALLOWANCE_FACTOR * max(beyond_s) + ALLOWANCE_OF_BUDGET * budget_s)


def read_progress(out: Path) -> Progress | None:
    """The last whole line of the training curve; None before there is one."""
    try:
        point = json.loads(read_end(out, "metrics.jsonl", POINT_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        known = {name: point[name] for name in ("step", "loss", "tokens_s") if _is_finite(point.get(name))}
        return Progress(fraction=point["progress"], **known) if _is_finite(point["progress"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not there yet, caught in the middle of a write, or nonsense


def read_summary(out: Path) -> Summary | None:
    """What the script wrote about itself; values that are no finite numbers are left out."""
    try:
        said = json.loads(read_end(out, "summary.json", SUMMARY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    names = [field.name for field in dataclasses.fields(Summary)]
    return Summary(**{name: said[name] for name in names if _is_finite(said.get(name))})


def _as_run(outcome: Outcome, budget_s: float, allowance_s: float, out: Path, seed: int) -> Run:
    ending, last_lines = outcome.ending, outcome.last_lines
    if ending is Ending.OVERRAN:
        allowed = f"{budget_s:g} s of budget and {allowance_s:.3g} s for start and end are over"
        last_lines = f"{last_lines}\n{allowed}".strip()
    if ending is Ending.FINISHED and not has_weights(out.parent):
        ending, last_lines = Ending.CRASHED, f"{last_lines}\nit left no {WEIGHTS}".strip()
    return Run(seed, ending, outcome.exit_code, outcome.wall_s, read_summary(out), last_lines)


def _is_finite(value: object) -> bool:
    """A number that arithmetic and formatting can take: no NaN, no inf, no integer beyond the floats."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
