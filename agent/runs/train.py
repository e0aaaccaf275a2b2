"""Train the committed script once, in its own box, under a budget and the harness's clock."""

import statistics
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from agent.experiment import Attempt, Ending, History, Run
from agent.judging.early_stop import Bound, Finished, bounds
from agent.runs.outputs import METRICS, read_losses, read_progress, read_summary, read_weights
from agent.runs.runner import WEIGHTS, Runner, weights_bytes

# Start, compilation and saving come on top of the budget. The slowest honest start measured took 150 s (MLX compiled a
# whole step for CUDA with cold caches). Attempt 0 gets twice that; a run that needs more hangs.
FIRST_ALLOWANCE_S = 300.0
# Later attempts get little more than attempt 0 needed: with more time a script could go on training.
ALLOWANCE_FACTOR, LEAST_ALLOWANCE_S, ALLOWANCE_OF_BUDGET = 1.5, 10.0, 0.05
MOST_CURVES = 400  # of whose first runs bounds are learnt: the time that takes grows with their square
_losses_of_finished = cache(read_losses)  # every later attempt needs them


def train(
    runner: Runner, number: int, script: str, seed: int, allowance_s: float, ahead: Sequence[Bound] = ()
) -> tuple[Run, str | None]:
    """Train once, to the end or to the first bound that is exceeded; return also why the machine may have spoilt it.

    An interrupted run of the same attempt and seed starts over.
    """
    folder = runner.run_folder(number, seed)
    run, spoilt = train_in(runner, folder, script, seed, runner.night.budget_s, allowance_s, ahead)
    if number == 0 and run.ending is Ending.FINISHED:
        runner.keep_warm(folder)
    weights = (WEIGHTS,) if run.ending is Ending.FINISHED else ()
    runner.keep_only(folder, runner.script_name, f"out/{METRICS}", "out/summary.json", *weights)
    return run, spoilt


def train_in(
    runner: Runner,
    folder: Path,
    script: str,
    seed: int,
    budget_s: float,
    allowance_s: float,
    ahead: Sequence[Bound] = (),
) -> tuple[Run, str | None]:
    """Train in this folder, emptied first, for budget_s; kill it allowance_s after the budget.

    Return the run, and why its end may be the machine's fault; None: nothing says so.
    """
    runner.lay_out(folder, script)
    out = folder / "out"
    out.mkdir()
    options = ["--budget-s", f"{budget_s:g}", "--seed", str(seed), "--out", "out", "--no-eval"]
    check = EarlyStopCheck(out, ahead)
    outcome = runner.call(
        [sys.executable, runner.script_name, *options],
        folder,
        budget_s + allowance_s,
        trains=True,
        progress=lambda: read_progress(out),
        hopeless=check.has_failed,
    )
    ending, size, why = outcome.ending, weights_bytes(folder), None
    if ending is Ending.HOPELESS:
        why = f"stopped early: its losses forecast a score of {check.forecast_bpb:.3f}, above the incumbent's"
    elif ending is Ending.OVERRAN:
        why = f"{budget_s:g} s of budget and {allowance_s:.3g} s for start and end are over"
    elif ending is Ending.FINISHED and size is None:
        ending, why = Ending.CRASHED, f"it left no {WEIGHTS}"
    run = Run(
        seed,
        ending,
        outcome.exit_code,
        outcome.wall_s,
        read_summary(out),
        "\n".join(filter(None, (outcome.last_lines, why))),
        weights_bytes=size,
        weights=read_weights(out) if ending is Ending.FINISHED else None,
        peak_bytes=outcome.peak_bytes,
        forecast_bpb=check.forecast_bpb,
    )
    return run, outcome.spoilt


def learnt_allowance_s(history: History, budget_s: float) -> float:
    """Return the seconds that a run may take beyond its budget, from the slowest run of attempt 0."""
    beyond_s = [run.wall_s - budget_s for run in history[0].done_runs if run.ending is Ending.FINISHED]
    if not beyond_s:
        return FIRST_ALLOWANCE_S
    return max(LEAST_ALLOWANCE_S, ALLOWANCE_FACTOR * max(beyond_s) + ALLOWANCE_OF_BUDGET * budget_s)


# ---- speed -----------------------------------------------------------------------------------------------------------

# An edit changes the speed of its script, so only runs of the same script compare.
MOST_LOST = 0.20  # of the speed; benchmarks/drift.py has the false alarms of it
LEAST_S = 2.0  # of training: shorter runs, and seconds that scripts round, tell nothing


def usual_steps_s(attempt: Attempt) -> float | None:
    """Return the median speed of an attempt's runs that count, in steps a second; None if no run tells it.

    The first run of attempt 0 is left out: it compiles, and was alone where the night has several workers.
    """
    runs = attempt.counted_runs if attempt.number else attempt.counted_runs[1:]
    speeds = [speed for run in runs if run.ending is Ending.FINISHED and (speed := run.steps_s) is not None]
    return statistics.median(speeds) if speeds else None


def slow(run: Run, usual_steps_s: float | None) -> str | None:
    """Return in words by how much a run was slower than others of its script; None if not, or not by much."""
    trained_s = run.summary.training_seconds if run.summary is not None else None
    if usual_steps_s is None or run.steps_s is None or trained_s is None or trained_s < LEAST_S:
        return None
    lost = 1 - run.steps_s / usual_steps_s
    return f"it trained {lost:.0%} slower than other runs of its script" if lost > MOST_LOST else None


# ---- early stop ------------------------------------------------------------------------------------------------------


class EarlyStopCheck:
    """Compare a running training with the early-stop bounds that it has not reached yet."""

    def __init__(self, out: Path, ahead: Sequence[Bound]) -> None:
        self._out = out
        self._ahead = list(ahead)
        self.forecast_bpb: float | None = None  # of the score of a run that is hopeless

    def has_failed(self) -> bool:
        """Return whether the run has failed a bound; read the whole metrics file only at a bound."""
        now = read_progress(self._out) if self._ahead else None
        if now is not None and now.fraction >= self._ahead[0].fraction:
            bound, *self._ahead = self._ahead
            self.forecast_bpb = bound.forecast_bpb(read_losses(self._out))
        return self.forecast_bpb is not None


def learnt_bounds(runner: Runner, history: History, best: Attempt | None) -> tuple[Bound, ...]:
    """Return the bounds for an attempt's first run, from earlier first runs, which had the same seed."""
    if best is None or best.val_bpb is None:
        return ()
    latest = (*history[-MOST_CURVES:], best)
    first = {attempt.number: run for attempt in latest if (run := first_finished(runner, attempt)) is not None}
    if best.number not in first:
        return ()
    return bounds(tuple(first.values()), Finished(first[best.number].losses, best.val_bpb))


def first_finished(runner: Runner, attempt: Attempt) -> Finished | None:
    """Return the losses and score of an attempt's first run; None without a score or after a failed audit."""
    run = next(iter(attempt.done_runs), None)
    score = run.score if run is not None else None
    if run is None or score is None or score.val_bpb is None or (score.audit and not score.audit.passed):
        return None
    return Finished(_losses_of_finished(runner.run_folder(attempt.number, run.seed) / "out"), score.val_bpb)
