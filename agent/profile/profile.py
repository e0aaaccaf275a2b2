"""Measure where the time of a training step goes, by a short run of the script under profiler.py."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from agent.errors import NightError, NightshiftError
from agent.experiment import Ending
from agent.files import throwaway_folder
from agent.profile.phases import PHASES, PROFILER, WITHOUT, read_phases
from agent.records.place import Place, read_script
from agent.runs.fixed import probe
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.places import View
from agent.sandbox.process import supervise

LIMIT_S = 3600.0  # of a few steps: after an hour it hangs


class CrashError(NightshiftError):
    """Say how the script crashed."""

    exit_code = 1


def profile(script: Path, steps: int, seed: int, console: Console) -> dict[str, object]:
    """Profile a script, print a table and return its figures; raise CrashError with its last lines if it fails."""
    place = Place.of(script)
    read_script(place)
    if steps < 2:
        raise NightError(f"--steps {steps} leaves nothing between two steps to measure; take 2 or more")
    facts = probe(place.script_path.parent)
    console.print(f"{place.script} on {facts['device']}, {steps} steps, seed {seed}", markup=False, soft_wrap=True)
    command = [sys.executable, "-P", str(PROFILER), str(place.script_path.resolve()), str(steps), str(seed)]
    with throwaway_folder() as folder:
        (folder / "out").mkdir()
        outcome = supervise(
            command, View(folder), env=scrubbed_env(facts["data"]), limit_s=LIMIT_S, stopped=lambda: False,
            tick=lambda elapsed_s: None,
        )  # fmt: skip
        phases = read_phases(folder)
    if outcome.ending is not Ending.FINISHED:
        how = f"{place.script} {outcome.ending} with exit code {outcome.exit_code}"
        raise CrashError(f"{how}; its last lines:\n{outcome.last_lines}".rstrip())
    if phases is None:
        raise NightError(f"{place.script} {WITHOUT}: give its optimizer that name and method")
    numbers = (Column(header, justify="right", no_wrap=True) for header in ("", "of the step"))
    table = Table("", *numbers, box=None, pad_edge=False)
    for phase, seconds in phases.seconds.items():
        table.add_row(PHASES[phase], f"{1000 * seconds:,.1f} ms", f"{seconds / phases.step_s:.1%}")
    table.add_row(f"mean of {phases.steps}", f"{1000 * phases.step_s:,.1f} ms", "")
    console.print(table)
    figures = {f"{phase}_s": phases.seconds.get(phase) for phase in PHASES}
    return {"device": facts["device"], "steps": phases.steps, "step_s": phases.step_s, **figures}
