"""Train the committed script once, in its own sandbox, under a budget and the harness's clock, and read what it leaves.

Nothing that a script leaves is trusted: its curve, its summary, and the header of its weights. Weights are
safetensors: eight bytes that give the length of a JSON header, the header, then the tensors' bytes.
"""

import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from agent.experiment import Attempt, Ending, History, Run, Summary
from agent.files import open_plain, plain_bytes, read_end
from agent.judging.early_stop import Bound, Finished, Losses, bounds, losses, point_of
from agent.runs.jobs import Measure
from agent.runs.reported import SUMMARY, SUMMARY_BYTES, numbers_of, takes
from agent.runs.runner import WEIGHTS, Runner
from agent.sandbox.process import Outcome
from agent.text import ABSURD, is_finite, plainly
from agent.work import Progress

# Start, compilation and saving come on top of the budget. The slowest honest start measured took 150 s (MLX compiled a
# whole step for CUDA with cold caches). Attempt 0 gets twice that; a run that needs more hangs.
FIRST_ALLOWANCE_S = 300.0
# Later attempts get little more than attempt 0 needed: with more time a script could go on training.
ALLOWANCE_FACTOR, LEAST_ALLOWANCE_S, ALLOWANCE_OF_BUDGET = 1.5, 10.0, 0.05
MOST_CURVES = 400  # bounds are learnt from the first runs of so many attempts; the time for it grows with the square


def train(runner: Runner, job: Measure) -> tuple[Run, str | None]:
    """Train once, to the end or to the first bound that is exceeded; return also why it may be invalid.

    An interrupted run of the same attempt and seed starts over.
    """
    folder = runner.run_folder(job.attempt, job.seed)
    out = folder / "out"
    check = EarlyStopCheck(out, job.bounds)
    outcome = train_in(runner, folder, job.script, job.seed, runner.night.budget_s, job.allowance_s, check.has_failed)
    if outcome.ending is Ending.HOPELESS:
        forecast = f"its losses forecast a score of {check.forecast_bpb:.3f}, above the best script's"
        outcome = outcome.explained(f"stopped early: {forecast}")
    is_finished = outcome.ending is Ending.FINISHED
    run = Run(
        job.seed,
        outcome.ending,
        outcome.exit_code,
        outcome.wall_s,
        summary_of(numbers_of(folder)) if runner.night.options.metric else read_summary(out),
        outcome.last_lines,
        weights_bytes=plain_bytes(folder / WEIGHTS),
        params=read_params(out) if is_finished else None,
        peak_bytes=outcome.peak_bytes,
        forecast_bpb=check.forecast_bpb,
        others_share=outcome.others_share,
    )
    if job.attempt == 0 and is_finished:
        runner.keep_warm(folder)
    weights = (WEIGHTS,) if is_finished else ()
    runner.keep_only(folder, runner.script_name, f"out/{METRICS}", f"out/{SUMMARY}", SUMMARY, *weights)
    return run, outcome.why_invalid


def train_in(
    runner: Runner,
    folder: Path,
    script: str,
    seed: int,
    train_s: float,
    allowance_s: float,
    hopeless: Callable[[], bool] = lambda: False,
    *options: str,
) -> Outcome:
    """Train in this folder, emptied first, with the night's budget, by which a script may choose its model.

    It is killed allowance_s after train_s. Its outcome is a crash, too, where it leaves no weights. A script that
    reports its own score is told only the options that it takes, and leaves what it likes.
    """
    runner.lay_out(folder, script)
    out = folder / "out"
    out.mkdir()
    told = {"--budget-s": plainly(runner.night.budget_s), "--seed": str(seed), "--out": "out"}
    is_scored = runner.night.options.metric is None
    options = (
        *(word for option, value in told.items() if is_scored or takes(script, option) for word in (option, value)),
        *(("--no-eval", *options) if is_scored else ()),
    )
    outcome = runner.call(
        [runner.night.options.python or sys.executable, runner.script_name, *options],
        folder,
        train_s + allowance_s,
        trains=True,
        seed=seed,
        progress=lambda: read_progress(out),
        hopeless=hopeless,
    )
    if outcome.ending is Ending.OVERRAN:
        return outcome.explained(f"{train_s:g} s of training and {allowance_s:.3g} s for start and end are over")
    if is_scored and outcome.ending is Ending.FINISHED and plain_bytes(folder / WEIGHTS) is None:
        return replace(outcome.explained(f"it left no {WEIGHTS}"), ending=Ending.CRASHED)
    return outcome


def learnt_allowance_s(history: History, budget_s: float) -> float:
    """Return the seconds that a run may take beyond its budget, from the slowest run of attempt 0.

    In the confirmation the machine may be busier: attempt 0's runs there may double what those of the night allow.
    """
    first = history[0]
    if not any(run.ending is Ending.FINISHED for run in first.done_runs):
        return FIRST_ALLOWANCE_S
    return min(2 * _allowance_s(first.done_runs, budget_s), _allowance_s(first.counted_runs, budget_s))


def _allowance_s(runs: Sequence[Run], budget_s: float) -> float:
    slowest_s = max(run.given_s - budget_s for run in runs if run.ending is Ending.FINISHED)
    return max(LEAST_ALLOWANCE_S, ALLOWANCE_FACTOR * slowest_s + ALLOWANCE_OF_BUDGET * budget_s)


# ---- what a script leaves --------------------------------------------------------------------------------------------

METRICS, METRICS_BYTES = "metrics.jsonl", 8 << 20  # the end of a longer file: about 60,000 points
POINT_BYTES = 4 << 10  # much more than a line of metrics.jsonl needs
COUNTS = ("num_steps", "depth")  # these numbers of a summary are whole
# enough for 16,000 tensors, and quick to read
HEADER_BYTES = 4 << 20
LEAST_HEADER_BYTES, TENSOR_BYTES = 1 << 10, 1 << 9  # bytes of a header, and for each tensor; more could hide weights
MOST_DIMENSIONS, LONGEST = 16, 1 << 48  # largest shape of a tensor; no model has a larger one, and products are slow
DTYPE = re.compile(r"(?:BOOL|[A-Z]+(8|16|32|64)(?:_\w+)?)")  # the group holds the bits of an element; BOOL has 8


def read_losses(out: Path) -> Losses:
    """Return the training losses so far; empty if there are none."""
    try:
        return losses(read_end(out, METRICS, METRICS_BYTES))
    except OSError:
        return losses(b"")


def read_progress(out: Path) -> Progress | None:
    """Return the progress in the last line of metrics.jsonl; None where that is no point of a curve, or not there."""
    try:
        point = point_of(read_end(out, METRICS, POINT_BYTES).rstrip(b"\n").rpartition(b"\n")[2])
    except OSError:
        return None
    return None if point is None else Progress(point.progress, point.step, point.loss, point.tokens_s)


def read_summary(out: Path) -> Summary | None:
    """Return the numbers of the script's summary.json, without those that are impossible; None if it has none."""
    try:
        return summary_of(json.loads(read_end(out, SUMMARY, SUMMARY_BYTES)))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def summary_of(numbers: Mapping[str, Any]) -> Summary:
    """Return those of these numbers that a summary has, without those that are impossible."""
    names = [field.name for field in fields(Summary) if _is_plausible(field.name, numbers.get(field.name))]
    return Summary(**{name: numbers[name] for name in names})


def _is_plausible(name: str, value: object) -> bool:
    is_number = is_finite(value) and (name not in COUNTS or isinstance(value, int))
    return is_number and 0 <= value <= ABSURD  # type: ignore[operator]


def read_params(out: Path) -> int | None:
    """Return the number of parameters by the header of the run's weights; None if the file is missing or malformed."""
    try:
        with open_plain(out, Path(WEIGHTS).name) as file:
            return count_params(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def count_params(file: BinaryIO, file_bytes: int) -> int | None:
    """Return the number of parameters in an open file of this size; None unless its header tells of every byte."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(HEADER_BYTES, file_bytes - 8):
        return None
    params = bits = 0
    try:
        header = json.loads(file.read(header_bytes))
        tensors = [facts for name, facts in header.items() if name != "__metadata__"]
        for tensor in tensors:
            dtype, shape = DTYPE.fullmatch(tensor["dtype"]), tensor["shape"]
            if len(shape) > MOST_DIMENSIONS or not all(type(size) is int and 0 <= size <= LONGEST for size in shape):
                return None  # bool is an int to isinstance
            params += prod(shape)
            bits += prod(shape) * int(dtype[1] or 8)  # type: ignore[index]  # an unknown type raises TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    data_bytes = file_bytes - 8 - header_bytes
    is_short = header_bytes <= LEAST_HEADER_BYTES + TENSOR_BYTES * len(tensors)
    return params if is_short and bits == 8 * data_bytes else None


# ---- speed -----------------------------------------------------------------------------------------------------------

# An edit changes the speed of its script, so only runs of the same script compare.
MOST_LOST = 0.20  # share of speed; benchmarks/drift.py counts the false alarms
LEAST_S = 2.0  # s of training: shorter runs tell nothing, since scripts round seconds


def usual_steps_s(attempt: Attempt) -> float | None:
    """Return the median speed of an attempt's runs that count, in steps a second; None if no run tells it.

    The first run of attempt 0 is left out: it compiles, and was alone where the night has several workers.
    """
    runs = attempt.counted_runs if attempt.number else attempt.counted_runs[1:]
    speeds = [speed for run in runs if run.ending is Ending.FINISHED and (speed := run.steps_s) is not None]
    return statistics.median(speeds) if speeds else None


def slow(run: Run, usual_steps_s: float | None) -> str | None:
    """Say how much slower a run was than others of its script; None if it was not, or only a little."""
    trained_s = run.summary.training_seconds if run.summary is not None else None
    if usual_steps_s is None or run.steps_s is None or trained_s is None or trained_s < LEAST_S:
        return None
    lost = 1 - run.steps_s / usual_steps_s
    return f"it trained {lost:.0%} slower than other runs of its script" if lost > MOST_LOST else None


# ---- early stop ------------------------------------------------------------------------------------------------------

_losses_of_finished = cache(read_losses)  # every later attempt needs them


class EarlyStopCheck:
    """Compare a running training with the early-stop bounds that it has not reached yet."""

    def __init__(self, out: Path, ahead: Sequence[Bound]) -> None:
        self._out = out
        self._ahead = list(ahead)
        self.forecast_bpb: float | None = None  # the forecast score, once the run is hopeless

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
    if run is None or run.val_bpb is None or run.failure is not None:
        return None
    return Finished(_losses_of_finished(runner.run_folder(attempt.number, run.seed) / "out"), run.val_bpb)
