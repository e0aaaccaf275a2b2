"""Tell whether the machine was slow during a run: throttled, short of power, or busy with another program. Pure.

An edit changes the speed of its script, so only runs of the same script compare.
"""

import statistics

from agent.experiment import Attempt, Ending, Run

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
