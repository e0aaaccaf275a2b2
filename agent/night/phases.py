"""Measure the phases of a training step under profiler.py: for `nightshift profile`, and once a night for proposers.

In a night the script of attempt 0 runs for a few steps under the profiler, in the sandbox of a training run: with its
data, its limits and no held-out text. A proposer gets numbers and the names of phases, and no word that the script
wrote.
"""

import shutil
import statistics
import sys
from collections.abc import Collection
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import msgspec
from rich.console import Console

from agent.errors import NightError, NightshiftError
from agent.experiment import Attempt, Ending, Run
from agent.files import open_plain, read_end, write_plain
from agent.judging.failures import process_failure
from agent.lab.operations import OPERATIONS
from agent.proposers.proposer import Phase
from agent.records.place import Place, read_script
from agent.runs.fixed import laid_out, probe
from agent.runs.runner import Runner
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.process import LOG, supervise
from agent.script.contract import fixed_files
from agent.text import ABSURD, harmless, plainly
from agent.view.screen import at_work

PROFILER = Path(__file__).with_name("profiler.py")
FILE, PRICES = "phases.json", "prices.json"  # files in a night's folder
FILE_BYTES, NOTES_BYTES = 64 << 10, 4 << 20  # bytes; both files are far smaller
PHASES = {  # profiler.py's phases in the order of a step → name for people
    "data": "waiting for a batch",
    "forward_backward": "forward + backward",
    "optimizer": "optimizer",
    "python": "Python",  # the rest of a step: schedule, log
}
WITHOUT = "calls no MuonAdamW.update, whose end is that of a step"
LIMIT_S = 3600.0  # s; after an hour, the command's few steps hang
STEPS = 8  # steps that a night measures; each waits for the device, and takes a few times as long
MOST_S, OF_BUDGET = 30.0, 0.1  # s for the measurement; and its share of the budget, a tenth of one run in a whole night
OF_LIMIT = 0.75  # share of the time limit after which no other kernel is left out


def _numbers(steps: int, seed: int, budget_s: float, until_s: float = 0.0) -> tuple[str, ...]:
    """Return what profiler.py is told beside the script: also the budget, by which a script may choose its model."""
    return str(steps), str(seed), plainly(budget_s), plainly(until_s)


def _read_spans(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the notes of the run in this folder; empty for nonsense, which a script may have written itself."""
    try:
        return msgspec.json.decode(
            read_end(folder, "notes.json", NOTES_BYTES), type=dict[str, list[tuple[float, float]]]
        )
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return {}


def read_prices(folder: Path) -> tuple[Phase, ...]:
    """Return for each operation what a step takes longer without its kernel, by the run in this folder."""
    spans = _read_spans(folder)
    step_s = _step_s(spans.get("optimizer", []))
    plain_s = {name: _step_s(spans.get(f"plain {name}", [])) for name in OPERATIONS}
    longer_s = {name: max(0.0, slow_s - step_s) for name, slow_s in plain_s.items() if slow_s and step_s}
    return tuple(Phase(name, 1000 * more_s, min(1.0, more_s / step_s)) for name, more_s in longer_s.items())


def _step_s(optimizer: list[tuple[float, float]]) -> float:
    """Return the median length of a step, which ends where the optimizer does; 0 where there are not two."""
    ends = [stop for _, stop in optimizer]
    return statistics.median(b - a for a, b in pairwise(ends)) if len(ends) > 1 else 0.0


def read_phases(folder: Path) -> tuple[Phase, ...]:
    """Return the mean phases of a step of the run in this folder, at last what is left of the step.

    A step ends where the optimizer does. Empty for a script without that optimizer.
    """
    spans = _read_spans(folder)
    ends = [stop for _, stop in spans.get("optimizer", ())]
    ends = ends[len(ends) // 4 :]  # the first steps have cold caches and clocks
    if len(ends) < 2 or ends[-1] <= ends[0]:
        return ()
    steps, from_s, to_s = len(ends) - 1, ends[0], ends[-1]
    step_s = (to_s - from_s) / steps
    seconds = {
        phase: sum(stop - start for start, stop in spans[phase] if from_s <= start < to_s) / steps
        for phase in PHASES
        if phase in spans
    }
    seconds["python"] = max(0.0, step_s - sum(seconds.values()))
    return tuple(Phase(PHASES[phase], 1000 * phase_s, phase_s / step_s) for phase, phase_s in seconds.items())


# ---- for the command -------------------------------------------------------------------------------------------------


class CrashError(NightshiftError):
    """Say how the script crashed."""

    exit_code = 1


def profile(script: Path, steps: int, seed: int, console: Console) -> dict[str, object]:
    """Profile a script, print a table and return its figures; raise CrashError with its last lines if it fails."""
    place = Place.of(script)
    text, beside = read_script(place), place.script_path.parent
    if steps < 2:
        raise NightError(f"--steps {steps} leaves nothing between two steps to measure; take 2 or more")
    with laid_out(beside, fixed_files(beside, text)) as folder:
        with at_work("looking at device and data"):
            facts = probe(folder, used_in=beside)
        head = harmless(f"{place.script} on {facts['device']}, {steps} steps, seed {seed}")
        console.print(head, markup=False, soft_wrap=True)
        numbers = _numbers(steps, seed, facts["budget_s"])
        (folder / place.script_path.name).write_bytes(text.encode())
        (folder / "out").mkdir()
        command = [sys.executable, "-P", str(PROFILER), place.script_path.name, *numbers]
        with at_work(f"training {steps} steps, and some without each kernel"):
            outcome = supervise(
                command, folder, env=scrubbed_env(facts["data"]), limit_s=LIMIT_S, stopped=lambda: False
            )
        phases = read_phases(folder)
    if outcome.ending is not Ending.FINISHED:
        how = f"{place.script} {outcome.ending} with exit code {outcome.exit_code}"
        raise CrashError(f"{how}; its last lines:\n{outcome.last_lines}".rstrip())
    if not phases:
        raise NightError(f"{place.script} {WITHOUT}: give its optimizer that name and method")
    for phase in (*phases, Phase("a step", sum(phase.ms for phase in phases), 1.0)):
        console.print(f"{phase.name:<20}{phase.ms:>12,.1f} ms{phase.share:>8.1%}", soft_wrap=True)
    return {"device": facts["device"], "phases": [asdict(phase) for phase in phases]}


# ---- of a night ------------------------------------------------------------------------------------------------------


def phases_of(night_folder: Path) -> tuple[Phase, ...]:
    """Return the phases that were measured in this night, in the order of a step; empty if there are none."""
    return _kept(night_folder, FILE, PHASES.values())


def prices_of(night_folder: Path) -> tuple[Phase, ...]:
    """Return what a step takes longer without the kernel of each operation, as this night has measured it."""
    return _kept(night_folder, PRICES, OPERATIONS)


def _kept(night_folder: Path, name: str, names: Collection[str]) -> tuple[Phase, ...]:
    try:
        with open_plain(night_folder, name) as file:
            phases = msgspec.json.decode(file.read(FILE_BYTES), type=tuple[Phase, ...])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return ()
    are_plausible = all(phase.name in names and 0 <= phase.ms <= ABSURD and 0 <= phase.share <= 1 for phase in phases)
    return phases if are_plausible else ()


def phases_were_measured(night_folder: Path) -> bool:
    """Return whether this night has measured its phases, even without success."""
    return (night_folder / FILE).exists()


def limit_s(budget_s: float, first: Attempt) -> float:
    """Return the seconds for the profiler: a share of the budget, and a start as long as attempt 0's was."""
    starts_s = [run.given_s - budget_s for run in first.done_runs if run.ending is Ending.FINISHED]
    return min(MOST_S, OF_BUDGET * budget_s) + max(0.0, min(starts_s, default=0.0))


def measure_phases(runner: Runner, first: Attempt) -> str | None:
    """Measure the phases of attempt 0, keep them in the night's folder and return a sentence; None if stopped."""
    night, folder = runner.night, runner.dry_folder(0).with_name("phases")
    runner.lay_out(folder, first.proposal.script)
    (folder / "out").mkdir()
    shutil.copyfile(PROFILER, folder / PROFILER.name)
    most_s = limit_s(night.budget_s, first)
    numbers = _numbers(STEPS, night.seed, night.budget_s, until_s=OF_LIMIT * most_s)
    command = [sys.executable, "-P", PROFILER.name, runner.script_name, *numbers]
    outcome = runner.call(command, folder, most_s, trains=True)
    run = Run(night.seed, outcome.ending, outcome.exit_code, outcome.wall_s, None, outcome.last_lines)
    why = process_failure(run)
    measured, prices = (read_phases(folder), read_prices(folder)) if why is None else ((), ())
    runner.keep_only(folder)
    if outcome.ending is Ending.STOPPED:
        return None
    write_plain(runner.folder / PRICES, msgspec.json.encode(prices))
    write_plain(runner.folder / FILE, msgspec.json.encode(measured))
    phases = phases_of(runner.folder)
    if phases:
        return f"a step: {', '.join(f'{phase.name} {phase.share:.0%}' for phase in phases)}"
    why = why or f"the script {WITHOUT}"
    return f"proposers are not told where the time of a step goes: {why}; log: {folder / LOG}"
