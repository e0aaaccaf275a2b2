"""Measure once a night where the time of a training step goes, for authors who can read.

The script of attempt 0 runs for a few steps under the profiler, in the box of a training run: with its data, its limits
and no held-out text. An author gets numbers and the names of phases, and no word that the script wrote.
"""

import json
import shutil
import sys
from pathlib import Path

from agent.experiment import Attempt, Ending, Run
from agent.files import open_plain, read_end, write_plain
from agent.judging.failures import training_failure
from agent.profile.phases import PHASES, PROFILER, REST, mean_phases
from agent.proposers.briefing import Phase
from agent.runs.outputs import METRICS, METRICS_BYTES
from agent.runs.runner import Runner
from agent.runs.score import SCORER
from agent.sandbox.process import LOG
from agent.text import ABSURD

FILE, NOTES = "phases.json", "notes.json"
FILE_BYTES, NOTES_BYTES = 64 << 10, 4 << 20  # much more than they need
# For the steps: a tenth of one run in a night of many. Attempt 0 says how long the start takes beside them.
MOST_S, OF_BUDGET = 30.0, 0.1
LEAST_STEPS, MOST_STEPS = 4, 16
SLOWER = 3.0  # a step that waits after each phase, without mx.compile, takes at most about this many times as long
NAMES = frozenset({*(name for name, _ in PHASES.values()), REST})


def phases_of(night_folder: Path) -> tuple[Phase, ...]:
    """Return the phases that were measured in this night, in the order of a step; empty if there are none."""
    try:
        with open_plain(night_folder, FILE) as file:
            return _checked(json.loads(file.read(FILE_BYTES)))
    except (OSError, ValueError, RecursionError):
        return ()


def phases_were_measured(night_folder: Path) -> bool:
    """Return whether this night has measured its phases, even without success."""
    return (night_folder / FILE).exists()


def limit_s(budget_s: float, first: Attempt) -> float:
    """Return the seconds for the profiler: a share of the budget, and a start as long as attempt 0's was."""
    starts_s = [run.wall_s - budget_s for run in first.done_runs if run.ending is Ending.FINISHED]
    return _steps_s(budget_s) + max(0.0, min(starts_s, default=0.0))


def measure_phases(runner: Runner, first: Attempt) -> str | None:
    """Measure the phases of attempt 0, keep them in the night's folder and return a sentence; None if stopped."""
    folder = runner.dry_folder(0).with_name("phases")
    found, why = _profiled(runner, folder, first)
    runner.drop_all_but_log(folder)
    if why is None and not found:
        return None
    facts = [{"name": one.name, "ms": one.ms, "share": one.share} for one in found]
    write_plain(runner.folder / FILE, json.dumps(facts))
    return why or f"a step: {', '.join(f'{one.name} {one.share:.0%}' for one in found)}"


def _profiled(runner: Runner, folder: Path, first: Attempt) -> tuple[tuple[Phase, ...], str | None]:
    """Return the phases of attempt 0, and why there are none; neither if the user stopped it."""
    runner.lay_out(folder, first.proposal.script)
    (folder / "out").mkdir()
    beside = folder / "agent" / "runs"  # where the profiler looks for the scorer's way to import a script
    beside.mkdir(parents=True)
    shutil.copyfile(SCORER, beside / SCORER.name)
    shutil.copyfile(PROFILER, folder / PROFILER.name)
    steps, seed = _steps(runner.night.budget_s, first), str(runner.night.seed)
    command = [sys.executable, "-P", PROFILER.name, runner.script_name, NOTES, "fenced", str(steps), seed]
    outcome = runner.call(command, folder, limit_s(runner.night.budget_s, first), trains=True)
    if outcome.ending is Ending.STOPPED:
        return (), None
    run = Run(runner.night.seed, outcome.ending, outcome.exit_code, outcome.wall_s, None, outcome.last_lines)
    why, found = training_failure(run), _read(folder)
    if why is None and found:
        return found, None
    why = why or "no function of the script marks the start of a step"
    return (), f"authors are not told where the time of a step goes: {why}; log: {folder / LOG}"


def _steps(budget_s: float, first: Attempt) -> int:
    """Return how many steps fit into the profiler's time, by the speed of attempt 0's first run."""
    run = next(iter(first.done_runs), None)
    steps = run.summary.num_steps if run is not None and run.summary is not None else None
    if not steps:
        return LEAST_STEPS
    return max(LEAST_STEPS, min(MOST_STEPS, int(_steps_s(budget_s) * steps / budget_s / SLOWER)))


def _steps_s(budget_s: float) -> float:
    return min(MOST_S, OF_BUDGET * budget_s)


def _read(folder: Path) -> tuple[Phase, ...]:
    """Return the phases from the notes of a run, which the script may have written itself; empty for nonsense."""
    try:
        points = read_end(folder / "out", METRICS, METRICS_BYTES).count(b"\n")
        found = mean_phases(json.loads(read_end(folder, NOTES, NOTES_BYTES)), points)
        if found is None:
            return ()
        return _checked([{"name": name, "ms": 1000 * s, "share": s / found.step_s} for name, s in found.rows])
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
        return ()


def _checked(facts: object) -> tuple[Phase, ...]:
    """Return the phases that these facts hold; empty unless all have known names and plausible numbers."""
    found = []
    for one in facts if isinstance(facts, list) else ():
        match one:
            case {"name": str(name), "ms": float(ms), "share": float(share)}:
                if name in NAMES and 0 <= ms <= ABSURD and 0 <= share <= 1:
                    found.append(Phase(name, ms, share))
                    continue
        return ()
    return tuple(found)
