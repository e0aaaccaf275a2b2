"""Compute the phases of a training step from profiler.py's notes, and measure them once a night for its authors.

In a night the script of attempt 0 runs for a few steps under the profiler, in the box of a training run: with its data,
its limits and no held-out text. An author gets numbers and the names of phases, and no word that the script wrote.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.experiment import Attempt, Ending, Run
from agent.files import open_plain, read_end, write_plain
from agent.judging.failures import training_failure
from agent.proposers.briefing import Phase
from agent.runs.outputs import METRICS, METRICS_BYTES
from agent.runs.runner import Runner
from agent.runs.score import SCORER
from agent.sandbox.process import LOG
from agent.text import ABSURD

PROFILER, NOTES = Path(__file__).with_name("profiler.py"), "notes.json"
FILE = "phases.json"  # in a night's folder
FILE_BYTES, NOTES_BYTES = 64 << 10, 4 << 20  # much more than they need
PHASES = {  # phase, in the order of a step → its name for people, and the function where it is measured
    "data": ("waiting for a batch", "prepare.batches"),
    "forward_backward": ("forward + backward", "mx.value_and_grad"),
    "optimizer": ("optimizer", "MuonAdamW.update"),
}
REST = "Python"  # what is left of a step: graph, schedule, log
NAMES = frozenset({*(name for name, _ in PHASES.values()), REST})
# For the steps: a tenth of one run in a night of many. Attempt 0 says how long the start takes beside them.
MOST_S, OF_BUDGET = 30.0, 0.1
LEAST_STEPS, MOST_STEPS = 4, 16
SLOWER = 3.0  # a step that waits after each phase, without mx.compile, takes at most about this many times as long


@dataclass(frozen=True, slots=True)
class Notes:
    """Hold profiler.py's notes on a run, in seconds of one clock; parts that the script did not reach are missing."""

    marks: Mapping[str, float] = field(default_factory=dict)  # begun, imported, opened (the corpus)
    steps: Sequence[float] = ()  # start of each step, the compiling one included
    # phase → start, stop, and how much of it went into building the graph
    spans: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    peak_gb: float | None = None  # of MLX
    process_gb: float | None = None

    @classmethod
    def of(cls, text: bytes) -> "Notes":
        """Read notes, which a script may have written itself; raise msgspec's errors or RecursionError for nonsense."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class Phases:
    """Hold a fenced step: name → seconds of each phase whose function the script calls, and at last of the rest."""

    seconds: Mapping[str, float]
    step_s: float
    steps: int  # number of steps averaged


def first_that_counts(points: int) -> int:
    """Return the index of the first step that counts: the first quarter has cold caches and clocks."""
    return points // 4


def mean_phases(notes: Notes, points: int) -> Phases | None:
    """Return the mean phases over the steps that count; None if the start of a step cannot be seen.

    points: how many steps the script has written to its metrics.jsonl, which leaves out its warm-up.
    """
    begins = notes.steps or [stop for _, stop, _ in notes.spans.get("optimizer", ())]
    warmups = max(0, len(begins) - points)
    begins = begins[warmups + first_that_counts(points) :]
    if len(begins) < 2 or begins[-1] <= begins[0]:
        return None
    steps, from_s, to_s = len(begins) - 1, begins[0], begins[-1]
    step_s, seconds = (to_s - from_s) / steps, dict[str, float]()
    for phase, (name, _) in PHASES.items():
        if phase in notes.spans:
            of_steps = (stop - start - graph_s for start, stop, graph_s in notes.spans[phase] if from_s <= start < to_s)
            seconds[name] = sum(of_steps) / steps
    return Phases(seconds | {REST: max(0.0, step_s - sum(seconds.values()))}, step_s, steps)


# ---- of a night ------------------------------------------------------------------------------------------------------


def phases_of(night_folder: Path) -> tuple[Phase, ...]:
    """Return the phases that were measured in this night, in the order of a step; empty if there are none."""
    try:
        with open_plain(night_folder, FILE) as file:
            phases = msgspec.json.decode(file.read(FILE_BYTES), type=tuple[Phase, ...])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return ()
    return phases if _are_plausible(phases) else ()


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
    runner.lay_out(folder, first.proposal.script)
    (folder / "out").mkdir()
    beside = folder / "agent" / "runs"  # where the profiler looks for the scorer's way to import a script
    beside.mkdir(parents=True)
    shutil.copyfile(SCORER, beside / SCORER.name)
    shutil.copyfile(PROFILER, folder / PROFILER.name)
    steps, seed = _steps(runner.night.budget_s, first), str(runner.night.seed)
    command = [sys.executable, "-P", PROFILER.name, runner.script_name, NOTES, "fenced", str(steps), seed]
    outcome = runner.call(command, folder, limit_s(runner.night.budget_s, first), trains=True)
    run = Run(runner.night.seed, outcome.ending, outcome.exit_code, outcome.wall_s, None, outcome.last_lines)
    why, phases = training_failure(run), read_phases(folder)
    runner.drop_all_but_log(folder)
    if outcome.ending is Ending.STOPPED:
        return None
    phases = () if why is not None else phases
    write_plain(runner.folder / FILE, msgspec.json.encode(phases))
    if phases:
        return f"a step: {', '.join(f'{phase.name} {phase.share:.0%}' for phase in phases)}"
    why = why or "no function of the script marks the start of a step"
    return f"authors are not told where the time of a step goes: {why}; log: {folder / LOG}"


def _steps(budget_s: float, first: Attempt) -> int:
    """Return how many steps fit into the profiler's time, by the speed of attempt 0's first run."""
    run = next(iter(first.done_runs), None)
    steps = run.summary.num_steps if run is not None and run.summary is not None else None
    if not steps:
        return LEAST_STEPS
    return max(LEAST_STEPS, min(MOST_STEPS, int(_steps_s(budget_s) * steps / budget_s / SLOWER)))


def _steps_s(budget_s: float) -> float:
    return min(MOST_S, OF_BUDGET * budget_s)


def read_phases(folder: Path) -> tuple[Phase, ...]:
    """Return the phases of a run in this folder; empty for nonsense, which a script may have written itself."""
    try:
        points = read_end(folder / "out", METRICS, METRICS_BYTES).count(b"\n")
        mean = mean_phases(Notes.of(read_end(folder, NOTES, NOTES_BYTES)), points)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return ()
    if mean is None:
        return ()
    phases = tuple(Phase(name, 1000 * seconds, seconds / mean.step_s) for name, seconds in mean.seconds.items())
    return phases if _are_plausible(phases) else ()


def _are_plausible(phases: Sequence[Phase]) -> bool:
    return all(phase.name in NAMES and 0 <= phase.ms <= ABSURD and 0 <= phase.share <= 1 for phase in phases)
