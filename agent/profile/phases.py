"""Compute the phases of a training step from profiler.py's notes on a fenced run: for the table and for nights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROFILER = Path(__file__).with_name("profiler.py")
PHASES = {  # phase, in the order of a step → its row's name, and the function where it is measured
    "data": ("waiting for a batch", "prepare.batches"),
    "forward_backward": ("forward + backward", "mx.value_and_grad"),
    "optimizer": ("optimizer", "MuonAdamW.update"),
}
REST = "Python"  # the row of what is left of a step: graph, schedule, log


@dataclass(frozen=True, slots=True)
class Phases:
    """Hold the seconds of each phase of a fenced step; None for a phase whose function the script does not call."""

    seconds: Mapping[str, float | None]
    step_s: float
    steps: int  # number of steps averaged

    @property
    def python_s(self) -> float:
        return max(0.0, self.step_s - sum(seconds or 0.0 for seconds in self.seconds.values()))

    @property
    def rows(self) -> list[tuple[str, float]]:
        """Return the name and seconds of each measured phase, and of the rest, in the order of a step."""
        found = [(name, self.seconds[phase]) for phase, (name, _) in PHASES.items()]
        return [(name, seconds) for name, seconds in found if seconds is not None] + [(REST, self.python_s)]


def first_that_counts(points: int) -> int:
    """Return the index of the first step that counts: the first quarter has cold caches and clocks."""
    return points // 4


def mean_phases(notes: Mapping[str, Any], points: int) -> Phases | None:
    """Return the mean phases over the steps that count; None if the start of a step cannot be seen.

    points: how many steps the script has written to its metrics.jsonl, which leaves out its warm-up.
    """
    spans = notes["spans"]
    begins = notes["steps"] or [stop for _, stop, _ in spans.get("optimizer", [])]
    warmups = max(0, len(begins) - points)
    begins = begins[warmups + first_that_counts(points) :]
    if len(begins) < 2:
        return None
    steps, from_s, to_s = len(begins) - 1, begins[0], begins[-1]
    seconds = {
        phase: sum(stop - start - graph_s for start, stop, graph_s in spans[phase] if from_s <= start < to_s) / steps
        if phase in spans
        else None
        for phase in PHASES
    }
    return Phases(seconds, (to_s - from_s) / steps, steps)
