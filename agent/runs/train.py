"""One training run: the committed script in its own box, under a budget and the harness's clock."""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from agent.experiment import Attempt, Ending, History, Progress, Run, Summary, Weights
from agent.judging.early_stop import Bound, Finished, Losses, bounds, is_finite, losses
from agent.runs.weights import count_weights
from agent.runs.workshop import WEIGHTS, Workshop, open_plain, read_end, weights_bytes
from agent.sandbox.process import Outcome

# Start, compilation and saving come on top of the budget. The slowest honest start measured is 150 s (a whole step
# compiled by MLX for CUDA with cold caches); attempt 0 gets twice that, which only a hang uses up.
FIRST_ALLOWANCE_S = 300.0
# What attempt 0 needed is known then, and what others get is not much more: beyond it a script would be training on.
ALLOWANCE_FACTOR, LEAST_ALLOWANCE_S, ALLOWANCE_OF_BUDGET = 1.5, 10.0, 0.05
POINT_BYTES, SUMMARY_BYTES = 4 << 10, 1 << 20  # far more than a line of the curve, or a summary, ever takes
# The least and the most that each number of a summary can be: the types and bounds of what machines do, with much room.
PLAUSIBLE: Mapping[str, tuple[type, float, float]] = {
    "training_seconds": (float, 0, 1e8),
    "total_seconds": (float, 0, 1e8),
    "peak_vram_mb": (float, 1e-3, 1e9),
    "mfu_percent": (float, 0, 1e3),
    "total_tokens_M": (float, 0, 1e9),
    "num_steps": (int, 0, 1e12),
    "num_params_M": (float, 1e-6, 1e9),
    "depth": (int, 0, 1e6),
}
CURVE, CURVE_BYTES = "metrics.jsonl", 8 << 20  # of a longer curve the end: some 60,000 points


def train(shop: Workshop, number: int, script: str, seed: int, allowance_s: float, ahead: Sequence[Bound] = ()) -> Run:
    """Train once, to the end or to the first bound that is exceeded.

    A run of the same attempt and seed that was interrupted begins again. One that overran is delayed rather than
    overrun where the machine was busy; whether it is done again is for others to say.
    """
    folder = shop.run_folder(number, seed)
    run = train_in(shop, folder, script, seed, shop.night.budget_s, allowance_s, ahead)
    if number == 0 and run.ending is Ending.FINISHED:
        shop.keep_warm(folder)
    shop.drop_temporary(folder)
    return run


def train_in(
    shop: Workshop,
    folder: Path,
    script: str,
    seed: int,
    budget_s: float,
    allowance_s: float,
    ahead: Sequence[Bound] = (),
) -> Run:
    """Train in a fresh folder."""
    shop.lay_out(folder, script)
    out = folder / "out"
    out.mkdir()
    options = ["--budget-s", f"{budget_s:g}", "--seed", str(seed), "--out", "out", "--no-eval"]
    command = [sys.executable, shop.script_name, *options]
    contest, limit_s = Contest(out, ahead), budget_s + allowance_s
    outcome = shop.call(
        command, folder, limit_s, trains=True, progress=lambda: read_progress(out), hopeless=contest.is_lost
    )
    run = _as_run(outcome, budget_s, allowance_s, out, seed)
    if run.ending is not Ending.HOPELESS:
        return run
    return dataclasses.replace(run, last_lines=f"{run.last_lines}\n{contest.verdict}".strip())


def learnt_allowance_s(history: History, budget_s: float) -> float:
    """What a run may take beyond its budget, from what the slowest of attempt 0's took by the harness's clock."""
    beyond_s = [run.wall_s - budget_s for run in history[0].done_runs if run.ending is Ending.FINISHED]
    if not beyond_s:
        return FIRST_ALLOWANCE_S
    return max(LEAST_ALLOWANCE_S, ALLOWANCE_FACTOR * max(beyond_s) + ALLOWANCE_OF_BUDGET * budget_s)


# ---- early stop ------------------------------------------------------------------------------------------------------


class Contest:
    """A running training against the bounds that it has still ahead."""

    def __init__(self, out: Path, ahead: Sequence[Bound]) -> None:
        self._out = out
        self._ahead = tuple(ahead)
        self.verdict: str | None = None  # why it is lost

    def is_lost(self) -> bool:
        """Asked again and again while it trains; the whole curve is read when it has come to the next bound."""
        now = read_progress(self._out) if self._ahead else None
        if now is not None and now.fraction >= self._ahead[0].fraction:
            known = read_losses(self._out)
            self.verdict = next((why for bound in self._ahead if (why := bound.verdict(known)) is not None), None)
            self._ahead = tuple(bound for bound in self._ahead if bound.fraction > now.fraction)
        return self.verdict is not None


def learnt_bounds(shop: Workshop, history: History, best: Attempt | None) -> tuple[Bound, ...]:
    """What the first run of an attempt is held to, from the first runs before it, which had the same seed."""
    known = {attempt.number: run for attempt in history if (run := first_finished(shop, attempt)) is not None}
    if best is None or best.val_bpb is None or best.number not in known:
        return ()
    return bounds(tuple(known.values()), Finished(known[best.number].losses, best.val_bpb))


def first_finished(shop: Workshop, attempt: Attempt) -> Finished | None:
    """What became of an attempt's first run; None without a score, and where it failed its audit."""
    run = next(iter(attempt.done_runs), None)
    score = run.score if run is not None else None
    if run is None or score is None or not is_finite(score.val_bpb) or (score.audit and not score.audit.passed):
        return None
    assert score.val_bpb is not None
    return Finished(_losses_of_finished(shop.run_folder(attempt.number, run.seed) / "out"), score.val_bpb)


@cache
def _losses_of_finished(out: Path) -> Losses:
    """What is finished does not change, and every later attempt asks for it."""
    return read_losses(out)


def read_losses(out: Path) -> Losses:
    """The training curve so far, in short; empty where there is none."""
    try:
        return losses(read_end(out, CURVE, CURVE_BYTES))
    except OSError:
        return {}


# ---- what a script says ----------------------------------------------------------------------------------------------


def read_progress(out: Path) -> Progress | None:
    """The last whole line of the training curve; None before there is one."""
    try:
        point = json.loads(read_end(out, CURVE, POINT_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
        known = {name: point[name] for name in ("step", "loss", "tokens_s") if is_finite(point.get(name))}
        return Progress(fraction=point["progress"], **known) if is_finite(point["progress"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not there yet, caught in the middle of a write, or nonsense


def read_summary(out: Path) -> Summary | None:
    """What the script wrote about itself, number by number: one that cannot be is left out."""
    try:
        said = json.loads(read_end(out, "summary.json", SUMMARY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    return Summary(**{name: said[name] for name in PLAUSIBLE if _is_plausible(name, said.get(name))})


def _is_plausible(name: str, value: object) -> bool:
    kind, least, most = PLAUSIBLE[name]
    if not is_finite(value) or (kind is int and not isinstance(value, int)):
        return False
    return least <= value <= most  # type: ignore[operator]  # finite: a number


def read_weights(out: Path) -> Weights | None:
    """What the run saved, by the header of the file; None where it cannot be told."""
    try:
        with open_plain(out, Path(WEIGHTS).name) as file:
            return count_weights(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def _as_run(outcome: Outcome, budget_s: float, allowance_s: float, out: Path, seed: int) -> Run:
    ending, last_lines = outcome.ending, outcome.last_lines
    if ending is Ending.OVERRAN:
        ending = Ending.DELAYED if outcome.busy else ending
        allowed = f"{budget_s:g} s of budget and {allowance_s:.3g} s for start and end are over"
        last_lines = "\n".join(filter(None, (last_lines, outcome.busy, allowed)))
    size = weights_bytes(out.parent)
    if ending is Ending.FINISHED and size is None:
        ending, last_lines = Ending.CRASHED, f"{last_lines}\nit left no {WEIGHTS}".strip()
    return Run(
        seed,
        ending,
        outcome.exit_code,
        outcome.wall_s,
        read_summary(out),
        last_lines,
        weights_bytes=size,
        weights=read_weights(out) if ending is Ending.FINISHED else None,
        peak_bytes=outcome.peak_bytes,
    )
