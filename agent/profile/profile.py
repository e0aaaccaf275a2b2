"""Measure where the time of a training step goes, by two short runs of the script in separate processes.

The first run measures start, step time and memory undisturbed. The second waits for MLX after each phase of a step,
which separates the phases but slows the step. The table shows both, so that the reader can judge the shares.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from agent.errors import NightError, NightshiftError
from agent.experiment import Ending
from agent.files import throwaway_folder
from agent.profile.phases import NOTES, PHASES, PROFILER, REST, Notes, Phases, first_that_counts, mean_phases
from agent.records.place import Place, read_script
from agent.runs.fixed import probe
from agent.runs.outputs import METRICS
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.places import View
from agent.sandbox.process import supervise

LIMIT_S = 3600.0  # of one run, which takes a few steps: after an hour it hangs
MS, S, COUNT = "{:,.1f} ms", "{:,.2f} s", "{:,.0f}"


@dataclass(frozen=True, slots=True)
class Point:
    """Hold what is read of a line of the script's metrics.jsonl."""

    t_s: float
    tokens: float | None = None  # so far
    mfu: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Hold a figure: a row of the table, and a number of the JSON under its key, if it has one."""

    name: str
    key: str | None
    value: float | None  # None where it was not measured
    form: str
    note: str = ""
    share: float | None = None  # of the fenced step

    @property
    def cells(self) -> tuple[str, str, str, str]:
        scaled = 1000 * (self.value or 0.0) if self.form == MS else self.value
        shown = "" if self.value is None else self.form.format(scaled)
        return self.name, shown, "" if self.share is None else f"{self.share:.1%}", self.note


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
    about = f"{place.script} on {facts['device']}, {steps} steps, seed {seed}"
    console.print(about, markup=False, soft_wrap=True)
    env = scrubbed_env(facts["data"])
    notes, points = _watched(place, "true", steps, seed, env)
    fenced_notes, fenced_points = _watched(place, "fenced", steps, seed, env)
    fenced = mean_phases(fenced_notes, len(fenced_points))
    numbers = (Column(header, justify="right", no_wrap=True) for header in ("", "of the step"))
    table = Table("", *numbers, "", box=None, pad_edge=False)
    answer: dict[str, object] = {"device": facts["device"], "fenced_steps": fenced.steps if fenced else None}
    for figures in (_of_step(points, fenced), _of_start(notes), _of_run(notes, points)):
        for figure in figures:
            table.add_row(*map(Text, figure.cells))
            if figure.key is not None:
                answer[figure.key] = None if figure.value is None else round(figure.value, 6)
        table.add_row()
    console.print(table)
    return answer


def _watched(place: Place, which: str, steps: int, seed: int, env: Mapping[str, str]) -> tuple[Notes, Sequence[Point]]:
    """Run the script under profiler.py and return its notes and the script's points; raise CrashError."""
    with throwaway_folder() as folder:
        (folder / "out").mkdir()
        script = place.script_path.resolve()
        command = [sys.executable, "-P", str(PROFILER), str(script), NOTES, which, str(steps), str(seed)]
        outcome = supervise(
            command, View(folder), env=env, limit_s=LIMIT_S, stopped=lambda: False, tick=lambda elapsed_s: None
        )
        if outcome.ending is not Ending.FINISHED:
            code = outcome.exit_code
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            if outcome.ending is Ending.OVERRAN:
                how = f"no end within {LIMIT_S:.0f} s"
            raise CrashError(f"{place.script} ended with {how}; its last lines:\n{outcome.last_lines}".rstrip())
        curve = folder / "out" / METRICS
        try:
            points = msgspec.json.Decoder(Point).decode_lines(curve.read_bytes() if curve.is_file() else b"")
        except msgspec.MsgspecError:
            points = []
        return Notes.of((folder / NOTES).read_bytes()), points


# ---- figures ---------------------------------------------------------------------------------------------------------


def _of_step(points: Sequence[Point], fenced: Phases | None) -> Iterator[Figure]:
    fenced_s = fenced.step_s if fenced else None
    for phase, (name, function) in (*PHASES.items(), ("python", (REST, ""))):
        seconds = fenced.seconds.get(name) if fenced else None
        note = f"{function} was not called: part of {REST}" if seconds is None else ""
        share = seconds / fenced_s if seconds is not None and fenced_s is not None else None
        yield Figure(name, f"{phase}_s", seconds, MS, note if function else "graph, schedule, log: the rest", share)
    how = f"mean of {fenced.steps}, without mx.compile" if fenced else "no function marks the start of a step"
    yield Figure("fenced step", "fenced_step_s", fenced_s, MS, how)
    counted = points[first_that_counts(len(points)) :]
    step_s, note = None, "the script wrote too little metrics.jsonl"
    if len(counted) > 1:
        step_s, note = (counted[-1].t_s - counted[0].t_s) / (len(counted) - 1), ""
    if step_s and fenced_s:  # how much longer the fenced step takes limits how far to trust the shares
        added = fenced_s / step_s - 1
        note = f"fenced: {added:+.1%}" + (
            "; faster without mx.compile, or was the machine busy?" if added < -0.1 else ""
        )
    yield Figure("true step", "step_s", step_s, MS, note)


def _of_start(notes: Notes) -> Iterator[Figure]:
    """Yield the seconds until a mark from the one before; None for a part that the script did not reach."""
    marks, steps = notes.marks, dict(enumerate(notes.steps))
    opened = marks.get("opened")
    for name, key, begin, end, note in (
        ("imports", "start_import_s", marks["begun"], marks["imported"], "MLX, prepare, the script"),
        ("corpus", "start_data_s", marks["imported"], opened, "opened and verified"),
        ("model", "start_model_s", opened or marks["imported"], steps.get(0), "and optimizer, first batch"),
        ("first step", "start_first_step_s", steps.get(0), steps.get(1), "makes the weights, compiles kernels"),
    ):
        seconds = None if begin is None or end is None else end - begin
        yield Figure(name, key, seconds, S, "not seen" if seconds is None else note)
    last = max((*marks.values(), *notes.steps[:2]))
    yield Figure("until training", None, last - marks["begun"], S)


def _of_run(notes: Notes, points: Sequence[Point]) -> Iterator[Figure]:
    counted = points[first_that_counts(len(points)) :]
    tokens_s = None
    if len(counted) > 1 and counted[0].tokens is not None and counted[-1].tokens is not None:
        tokens_s = (counted[-1].tokens - counted[0].tokens) / (counted[-1].t_s - counted[0].t_s)
    yield Figure("tokens/s", "tokens_s", tokens_s, COUNT)
    # as every step does the same work, the mean over time is the harmonic one
    mfus = [point.mfu for point in counted[1:] if point.mfu]
    yield Figure("MFU", "mfu", statistics.harmonic_mean(mfus) if mfus else None, "{:.1%}")
    yield Figure("peak memory", "peak_gb", notes.peak_gb, "{:.2f} GB", "of MLX's arrays")
    yield Figure("", "process_gb", notes.process_gb, "{:.2f} GB", "of the process")
