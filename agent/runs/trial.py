"""Rehearse an attempt with a second of training and two rows of scoring, so that errors show before the long run.

Both use training text only, so their error messages may be shown to the author of the edit.
"""

from pathlib import Path

import numpy as np

from agent.clock import Stopwatch
from agent.experiment import DryRun, Ending
from agent.files import remove
from agent.judging.failures import training_failure
from agent.lab.data import load_data
from agent.runs.runner import WEIGHTS, Repeats, Runner
from agent.runs.score import Rows, committed_losses
from agent.runs.train import train_in

BUDGET_S = 1.0
ROWS = 2


def rehearse(runner: Runner, number: int, script: str, allowance_s: float, limit_s: float) -> DryRun | None:
    """Train and score briefly; return None if the user stopped it. Only the log is kept."""
    watch, folder, repeats = Stopwatch(), runner.dry_folder(number), Repeats(runner)
    budget_s = min(BUDGET_S, runner.night.budget_s)
    while True:
        run, spoilt = train_in(runner, folder, script, runner.night.seed, budget_s, allowance_s)
        if not repeats.wanted(run.ending, spoilt):
            break
    if run.ending is Ending.STOPPED:
        return None
    failure, overran = training_failure(run), run.ending is Ending.OVERRAN
    if failure is None:
        aside = folder.with_name(f"{folder.name}.score")
        reply = committed_losses(runner, aside, script, folder / WEIGHTS, limit_s, _rows(Path(runner.night.data)))
        if reply.numbers is None and reply.failure is None:
            return None
        failure, overran = reply.failure, reply.overran
        remove(aside)
    runner.drop_all_but_log(folder)
    return DryRun(watch.elapsed_s, failure, overran)


def _rows(data: Path) -> Rows:
    """Return the first ROWS rows of the training text."""
    corpus = load_data(data, verify=False)  # its checksums were verified
    line = np.array(corpus.split("train").tokens[: ROWS * corpus.seq_len + 1], np.uint16)
    inputs, targets = (part.reshape(ROWS, corpus.seq_len) for part in (line[:-1], line[1:]))
    return Rows(inputs, targets, corpus.token_bytes)
