"""Take the place of training, scoring and auditing in a copy of the harness whose runs only sleep (see scale.py)."""

import json
import random
import time

import psutil

from agent.experiment import Audit, Ending, Run, Score, Summary
from agent.runs.jobs import Measure
from agent.runs.runner import WEIGHTS, Runner

SLEEP_S: float | None = None  # None: the budget
SIGMA_BPB = 0.004


def train(runner: Runner, job: Measure) -> tuple[Run, None]:
    """Sleep, and write down when, and the megabytes of this process."""
    budget_s, began = runner.night.budget_s, time.time()
    time.sleep(budget_s if SLEEP_S is None else SLEEP_S)
    folder = runner.run_folder(job.attempt, job.seed)
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    slept = began, time.time(), psutil.Process().memory_info().rss / 1e6
    (out / "summary.json").write_text(json.dumps({"slept": slept}), encoding="utf-8")  # a node sends this file back
    (folder / WEIGHTS).write_bytes(b"")
    summary = Summary(budget_s, budget_s, 1.0, 0.1, 1.0, 500, 0.1, 0)
    sizes = {"weights_bytes": 4096, "params": 1000, "peak_bytes": 1 << 28}
    return Run(job.seed, Ending.FINISHED, 0, budget_s, summary, "slept", **sizes), None  # type: ignore[arg-type]


def score(runner: Runner, job: Measure, *rest: object) -> Score:
    """Return a score at once: most edits are a little worse than the first script, and some are better.

    A loss that a node may send with it is left in the place of those that a real score is of.
    """
    number, seed = job.attempt, job.seed
    runner.losses(number, seed).write_bytes(bytes(4))
    edit = random.Random(number).gauss(0.3 * SIGMA_BPB, SIGMA_BPB) if number else 0.0
    return Score(1.2 + edit + random.Random(f"{number} {seed}").gauss(0, SIGMA_BPB), 0.0)


def audit(*arguments: object) -> Audit:
    """Find nothing wrong."""
    return Audit(256, 1e-6, 0.0)
