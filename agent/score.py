"""Scoring from outside: a separate process loads the saved weights and measures bits per byte."""

import json
import math
import shutil
import sys
from pathlib import Path

from agent.experiment import Ending, Score
from agent.process import WEIGHTS, Outcome, Workshop, lay_out, read_end, scrubbed_env, supervise

# Scoring is a forward pass over fixed rows: seconds on a GPU, under a minute on two CPU cores. An hour is a hang.
LIMIT_S = 3600.0
ANSWER_BYTES = 4 << 10
SCORER = Path(__file__).with_name("scorer.py")


def score(shop: Workshop, number: int, script: str, seed: int) -> Score | None:
    """Measure the weights that a finished run left; None when the user stopped it in the middle."""
    run_folder = shop.run_folder(number, seed)
    folder = shop.score_folder(number, seed)
    lay_out(folder, shop.fixed, shop.script_name, script)
    shutil.copyfile(SCORER, folder / SCORER.name)
    command = [sys.executable, SCORER.name, shop.script_name, str(run_folder / WEIGHTS)]
    outcome = supervise(
        command,
        folder,
        env=scrubbed_env(shop.night.data),
        limit_s=LIMIT_S,
        stopped=shop.stopped,
        tick=lambda elapsed_s: shop.progressed(None, elapsed_s),
    )
    return None if outcome.ending is Ending.STOPPED else _as_score(outcome, folder)


def _as_score(outcome: Outcome, folder: Path) -> Score:
    if outcome.ending is not Ending.FINISHED:
        lines = outcome.last_lines.strip().splitlines()
        return Score(None, outcome.wall_s, f"scoring {outcome.ending}: {lines[-1][:200] if lines else 'no output'}")
    try:
        val_bpb = float(json.loads(read_end(folder / "score.json", ANSWER_BYTES))["val_bpb"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return Score(None, outcome.wall_s, f"scoring left no readable score.json ({error})")
    if not math.isfinite(val_bpb):
        return Score(None, outcome.wall_s, f"val_bpb is {val_bpb}")
    return Score(val_bpb, outcome.wall_s)
