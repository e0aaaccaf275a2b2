"""Measure where the time of a training step goes, by two short runs of the script in separate processes.

The first run measures start, step time and memory undisturbed. The second waits for MLX after each phase of a step,
which separates the phases but slows the step. The table shows both, so that the reader can judge the shares.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.errors import NightError, NightshiftError
from agent.experiment import Ending
from agent.files import throwaway_folder
from agent.profile.phases import PHASES, PROFILER, REST, Phases, first_that_counts, mean_phases
from agent.profile.trace import record_command, recorded
from agent.records.place import Place, read_script
from agent.runs.fixed import probe
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.places import View
from agent.sandbox.process import Outcome, supervise

LIMIT_S = 3600.0  # of one run, which takes a few steps and a few rows: after an hour it hangs


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """Hold the options of `nightshift profile`."""

    script: Path
    steps: int
    seed: int
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold profiler.py's notes on one run, and the points of the script's metrics.jsonl."""

    notes: Mapping[str, Any]
    points: Sequence[Mapping[str, float]]

    @property
    def first(self) -> int:
        return first_that_counts(len(self.points))


@dataclass(frozen=True, slots=True)
class Speed:
    """Hold the time and speed of a step without fences."""

    step_s: float
    tokens_s: float | None
    mfu: float | None


class CrashError(NightshiftError):
    """Say how the script, or its recorder, crashed."""

    exit_code = 1

    def __init__(self, what: str, outcome: Outcome) -> None:
        code = outcome.exit_code
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        if outcome.ending is Ending.OVERRAN:
            how = f"no end within {LIMIT_S:.0f} s"
        super().__init__(f"{what} ended with {how}; its last lines:\n{outcome.last_lines}".rstrip())


def profile(request: ProfileRequest, console: Console) -> dict[str, object]:
    """Profile a script, print the table and return its figures; raise CrashError with its last lines if it fails."""
    place = Place.of(request.script)
    read_script(place)
    check(request)
    facts = probe(place.script_path.parent)
    recorder = (
        record_command(facts["device_kind"], request.trace, training_command(place, request)) if request.trace else None
    )
    env = scrubbed_env(facts["data"])
    about = f"{place.script} on {facts['device']}, {request.steps} steps, seed {request.seed}"
    console.print(about, markup=False, soft_wrap=True)
    true, fenced = (watch(place, request, which, env) for which in ("true", "fenced"))
    console.print(table(true, fenced))
    if recorder and request.trace:
        console.print(f"recorded {record(recorder, request.trace, env)}", markup=False, soft_wrap=True)
    return {"device": facts["device"], **flat(true, fenced)}


def check(request: ProfileRequest) -> None:
    """Raise NightError if there are too few steps to measure."""
    if request.steps < 2:
        raise NightError(f"--steps {request.steps} leaves nothing between two steps to measure; take 2 or more")


# ---- runs ------------------------------------------------------------------------------------------------------------


def watch(place: Place, request: ProfileRequest, which: str, env: Mapping[str, str]) -> Seen:
    """Run the script under profiler.py and return its notes; raise CrashError."""
    with throwaway_folder() as folder:
        (folder / "out").mkdir()
        script, steps, seed = place.script_path.resolve(), str(request.steps), str(request.seed)
        command = [sys.executable, "-P", str(PROFILER), str(script), "notes.json", which, steps, seed]
        run(place.script, command, folder, env)
        return Seen(json.loads((folder / "notes.json").read_text()), tuple(read_points(folder / "out")))


def training_command(place: Place, request: ProfileRequest) -> list[str]:
    """Return the command of a plain training run, for a recorder."""
    options = ["--max-steps", str(request.steps), "--seed", str(request.seed), "--no-eval"]
    return [sys.executable, str(place.script_path.resolve()), *options]


def record(command: list[str], file: Path, env: Mapping[str, str]) -> Path:
    """Run the script under its recorder and return the recorded file; raise CrashError if there is none.

    The exit code is ignored: xctrace's may be the script's or its own.
    """
    with throwaway_folder() as aside:
        outcome = supervised(command, aside, env)
    if not recorded(file):
        raise CrashError(Path(command[0]).name, outcome)
    return recorded(file)[-1]


def run(what: str, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run a command in a folder; raise CrashError, which names it `what`, unless it ends well."""
    outcome = supervised(command, folder, env)
    if outcome.ending is not Ending.FINISHED:
        raise CrashError(what, outcome)


def supervised(command: list[str], folder: Path, env: Mapping[str, str]) -> Outcome:
    return supervise(
        command, View(folder), env=env, limit_s=LIMIT_S, stopped=lambda: False, tick=lambda elapsed_s: None
    )


def read_points(out: Path) -> Iterator[Mapping[str, float]]:
    """Yield the numbers of each valid line of metrics.jsonl."""
    file = out / "metrics.jsonl"
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
        try:
            point = json.loads(line)
        except ValueError:
            continue
        if isinstance(point, dict) and "t_s" in point:
            yield {name: value for name, value in point.items() if isinstance(value, int | float)}


# ---- figures ---------------------------------------------------------------------------------------------------------


def speed(true: Seen) -> Speed | None:
    """Return the speed from the script's metrics.jsonl; None if it has too few points."""
    if len(true.points) - true.first < 2:
        return None
    first, *rest = true.points[true.first :]
    last, seconds = rest[-1], rest[-1]["t_s"] - first["t_s"]
    tokens_s = (last["tokens"] - first["tokens"]) / seconds if {"tokens"} <= first.keys() & last.keys() else None
    mfus = [point["mfu"] for point in rest if point.get("mfu")]
    # as every step does the same work, the mean over time is the harmonic one
    return Speed(seconds / len(rest), tokens_s, statistics.harmonic_mean(mfus) if mfus else None)


def phases(fenced: Seen) -> Phases | None:
    return mean_phases(fenced.notes, len(fenced.points))


def start(true: Seen) -> dict[str, float | None]:
    """Return the seconds of each part of the start, in order; None for a part that the script did not reach."""
    marks, steps = true.notes["marks"], true.notes["steps"]
    opened = marks.get("opened")
    return {
        "import": marks["imported"] - marks["begun"],
        "data": opened - marks["imported"] if opened else None,
        "model": steps[0] - (opened or marks["imported"]) if steps else None,
        "first_step": steps[1] - steps[0] if len(steps) > 1 else None,
    }


def flat(true: Seen, fenced: Seen) -> dict[str, float | int | None]:
    """Return the figures for --json by name, with None for one that could not be measured."""
    fast, slow, scoring = speed(true), phases(fenced), true.notes["scoring"]
    found: dict[str, float | int | None] = {
        "step_s": fast.step_s if fast else None,
        "tokens_s": fast.tokens_s if fast else None,
        "mfu": fast.mfu if fast else None,
        "peak_gb": true.notes["peak_gb"],
        "process_gb": true.notes["process_gb"],
        "fenced_step_s": slow.step_s if slow else None,
        "fenced_steps": slow.steps if slow else None,
        **{f"{phase}_s": slow.seconds[phase] if slow else None for phase in PHASES},
        "python_s": slow.python_s if slow else None,
        **{f"start_{part}_s": seconds for part, seconds in start(true).items()},
        "scoring_s": scoring_s(scoring) if scoring else None,
        "scoring_measured_rows": scored_rows(scoring) if scoring else None,
        "scoring_rows": scoring["of_rows"] if scoring else None,
    }
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in found.items()}


def scoring_s(scoring: Mapping[str, float]) -> float:
    return scoring["seconds"] * scoring["of_batches"] / scoring["batches"]


def scored_rows(scoring: Mapping[str, float]) -> float:
    return min(scoring["batches"] * scoring["rows"], scoring["of_rows"])


# ---- the table -------------------------------------------------------------------------------------------------------


def table(true: Seen, fenced: Seen) -> RenderableType:
    return Group("", step_table(speed(true), phases(fenced)), "", start_table(true), "", run_table(true))


def step_table(fast: Speed | None, slow: Phases | None) -> Table:
    found = columns("a step", "ms", "share")
    for phase, (name, function) in PHASES.items():
        seconds = slow.seconds[phase] if slow else None
        lost = "" if seconds is not None else f"{function} was not called: part of Python"
        row(found, name, *ms(seconds, slow), lost)
    row(found, REST, *ms(slow.python_s if slow else None, slow), "graph, schedule, log: the rest")
    how = f"mean of {slow.steps}, without mx.compile" if slow else "no function marks the start of a step"
    row(found, "fenced step", *ms(slow.step_s if slow else None, slow), how, style="bold")
    if fast is None:
        row(found, "true step", "", "", "the script wrote no metrics.jsonl")
        return found
    row(found, "true step", *ms(fast.step_s, slow), distance(fast, slow) if slow else "", style="bold")
    return found


def distance(fast: Speed, slow: Phases) -> str:
    """Say how much longer the fenced step takes, which limits how far to trust the shares."""
    added = slow.step_s / fast.step_s - 1
    return f"fenced: {added:+.1%}" + ("; faster without mx.compile, or was the machine busy?" if added < -0.1 else "")


def start_table(true: Seen) -> Table:
    found, parts = columns("the start", "s"), start(true)
    for name, part, how in (
        ("imports", "import", "MLX, prepare, the script"),
        ("corpus", "data", "opened and verified"),
        ("model", "model", "and optimizer, first batch"),
        ("first step", "first_step", "makes the weights, compiles kernels"),
    ):
        row(found, name, number(parts[part], ",.2f"), "", how if parts[part] is not None else "not seen")
    row(found, "until training", number(sum(s or 0.0 for s in parts.values()), ",.2f"), style="bold")
    return found


def run_table(true: Seen) -> Table:
    found, fast = columns("the run"), speed(true)
    row(found, "tokens/s", number(fast.tokens_s if fast else None, ",.0f"))
    row(found, "MFU", number(fast.mfu if fast else None, ".1%"))
    row(found, "scoring, s", *scoring_cells(true.notes["scoring"]))
    process = number(true.notes["process_gb"], ".2f")
    row(found, "peak memory, GB", number(true.notes["peak_gb"], ".2f"), "", f"MLX's arrays; the process {process}")
    return found


def scoring_cells(scoring: Mapping[str, float] | None) -> tuple[str, str, str]:
    if scoring is None:
        return "", "", "prepare.evaluate_bpb was not called"
    whole = scoring["batches"] == scoring["of_batches"]
    how = "all" if whole else f"extrapolated from {scored_rows(scoring):,} of"
    return number(scoring_s(scoring), ",.1f"), "", f"{how} {scoring['of_rows']:,} rows"


def columns(title: str, unit: str = "", share: str = "") -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    found.add_column(title, min_width=20)
    found.add_column(unit, justify="right", min_width=9, no_wrap=True)
    found.add_column(share, justify="right", min_width=6, no_wrap=True)
    found.add_column("")
    return found


def row(found: Table, *cells: str, style: str = "") -> None:
    found.add_row(*(Text(cell) for cell in cells), style=style)


def ms(seconds: float | None, slow: Phases | None) -> tuple[str, str]:
    """Format seconds as milliseconds, and as a share of the fenced step."""
    if seconds is None:
        return "", ""
    return f"{1000 * seconds:,.1f}", f"{seconds / slow.step_s:.1%}" if slow else ""


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
