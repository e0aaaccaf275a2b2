"""Take the place of training, scoring and auditing in a harness whose runs only sleep (see scale.py)."""

import json
import random
import time

from agent.experiment import Audit, Ending, Run, Score, Summary, Weights
from agent.runs.runner import WEIGHTS, Runner

SIGMA_BPB = 0.004


def train(runner: Runner, number: int, script: str, seed: int, *rest: object) -> tuple[Run, None]:
    """Sleep for the budget, and write down when."""
    budget_s, began = runner.night.budget_s, time.time()
    time.sleep(budget_s)
    folder = runner.run_folder(number, seed)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    (folder / "out" / "summary.json").write_text(json.dumps({"slept": [began, time.time()]}))
    (folder / WEIGHTS).write_bytes(b"")
    run = Run(
        seed,
        Ending.FINISHED,
        0,
        budget_s,
        Summary(budget_s, budget_s, 1.0, 0.1, 1.0, 500, 0.1, 0),
        "slept",
        weights_bytes=4096,
        weights=Weights(1000, 4000),
        peak_bytes=1 << 28,
    )
    return run, None


def score(runner: Runner, number: int, script: str, seed: int, *rest: object) -> Score:
    """Return a score at once: most edits are a little worse than the first script, and some are better.

    A loss that a node may send with it is left in the place of those that a real score is of.
    """
    runner.losses(number, seed).write_bytes(bytes(4))
    edit = random.Random(number).gauss(0.3 * SIGMA_BPB, SIGMA_BPB) if number else 0.0
    return Score(1.2 + edit + random.Random(f"{number} {seed}").gauss(0, SIGMA_BPB), 0.0)


def audit(*asked: object) -> Audit:
    """Find nothing wrong."""
    return Audit(256, 0, 1e-6, 1e-7, 0.0)
