"""Measure where the time of a training step goes, by two short runs of the script in separate processes.

The first run measures step time and memory undisturbed. The second waits for MLX after each phase of a step, which
separates the phases but slows the step. The table shows both, so that the reader can judge the shares.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Column, Table

from agent.errors import NightError, NightshiftError
from agent.experiment import Ending
from agent.files import throwaway_folder
from agent.profile.phases import PHASES, PROFILER, WITHOUT, Phases, first_that_counts, read_phases
from agent.profile.profiler import BUDGET_S
from agent.records.place import Place, read_script
from agent.runs.fixed import probe
from agent.runs.outputs import METRICS, read_summary
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.places import View
from agent.sandbox.process import supervise

LIMIT_S = 3600.0  # of one run, which takes a few steps: after an hour it hangs


@dataclass(frozen=True, slots=True)
class Point:
    """Hold what is read of a line of the script's metrics.jsonl."""

    t_s: float
    tokens: float | None = None  # so far
    mfu: float | None = None


class CrashError(NightshiftError):
    """Say how the script crashed."""

    exit_code = 1


def profile(script: Path, steps: int, seed: int, console: Console) -> dict[str, object]:
    """Profile a script, print the table and return its figures; raise CrashError with its last lines if it fails."""
    place = Place.of(script)
    read_script(place)
    if steps < 2:
        raise NightError(f"--steps {steps} leaves nothing between two steps to measure; take 2 or more")
    facts = probe(place.script_path.parent)
    console.print(f"{place.script} on {facts['device']}, {steps} steps, seed {seed}", markup=False, soft_wrap=True)
    env, path = scrubbed_env(facts["data"]), str(place.script_path.resolve())
    options = ["--max-steps", steps, "--seed", seed, "--no-eval", "--budget-s", BUDGET_S, "--out", "out"]
    with _after([path, *map(str, options)], place, env) as folder:
        step = _step(_points(folder / "out"))
        summary = read_summary(folder / "out")
        peak_mb = summary.peak_vram_mb if summary else None
    with _after(["-P", str(PROFILER), path, str(steps), str(seed)], place, env) as folder:
        fenced = read_phases(folder)
    figures = {
        "fenced_step_s": fenced.step_s if fenced else None,
        **{f"{phase}_s": fenced.seconds.get(phase) if fenced else None for phase in PHASES},
        **step,
        "peak_gb": None if peak_mb is None else peak_mb / 1e3,
    }
    console.print(_table(figures, fenced))
    if fenced is None:
        console.print(f"{place.script} {WITHOUT}", markup=False, soft_wrap=True)
    rounded = {key: None if value is None else round(value, 6) for key, value in figures.items()}
    return {"device": facts["device"], "fenced_steps": fenced.steps if fenced else None, **rounded}


@contextmanager
def _after(words: Sequence[str], place: Place, env: Mapping[str, str]) -> Iterator[Path]:
    """Run Python with these words in a folder, and yield that; raise CrashError where it fails."""
    with throwaway_folder() as folder:
        (folder / "out").mkdir()
        outcome = supervise(
            [sys.executable, *words], View(folder), env=env, limit_s=LIMIT_S, stopped=lambda: False,
            tick=lambda elapsed_s: None,
        )  # fmt: skip
        if outcome.ending is not Ending.FINISHED:
            how = f"{place.script} {outcome.ending} with exit code {outcome.exit_code}"
            raise CrashError(f"{how}; its last lines:\n{outcome.last_lines}".rstrip())
        yield folder


def _points(out: Path) -> Sequence[Point]:
    """Return the points of the script's curve from the first step that counts."""
    curve = out / METRICS
    try:
        points = msgspec.json.Decoder(Point).decode_lines(curve.read_bytes() if curve.is_file() else b"")
    except msgspec.MsgspecError:
        points = []
    return points[first_that_counts(len(points)) :]


def _step(points: Sequence[Point]) -> dict[str, float | None]:
    if len(points) < 2:
        return {"step_s": None, "tokens_s": None, "mfu": None}
    first, last = points[0], points[-1]
    tokens = None if first.tokens is None or last.tokens is None else last.tokens - first.tokens
    # as every step does the same work, the mean over time is the harmonic one
    mfus = [point.mfu for point in points[1:] if point.mfu]
    return {
        "step_s": (last.t_s - first.t_s) / (len(points) - 1),
        "tokens_s": None if tokens is None else tokens / (last.t_s - first.t_s),
        "mfu": statistics.harmonic_mean(mfus) if mfus else None,
    }


def _table(figures: Mapping[str, float | None], fenced: Phases | None) -> Table:
    """Return what was measured as a table, the phases as shares of the fenced step."""
    numbers = (Column(header, justify="right", no_wrap=True) for header in ("", "of the step"))
    table = Table("", *numbers, box=None, pad_edge=False)
    if fenced is not None:
        for phase, seconds in fenced.seconds.items():
            table.add_row(PHASES[phase], f"{1000 * seconds:,.1f} ms", f"{seconds / fenced.step_s:.1%}")
    for name, key, scale, form in (
        ("fenced step", "fenced_step_s", 1000, "{:,.1f} ms"),
        ("true step", "step_s", 1000, "{:,.1f} ms"),
        ("tokens/s", "tokens_s", 1, "{:,.0f}"),
        ("MFU", "mfu", 100, "{:.1f}%"),
        ("peak memory", "peak_gb", 1, "{:.2f} GB"),
    ):
        if (value := figures[key]) is not None:
            table.add_row(name, form.format(scale * value), "")
    return table
