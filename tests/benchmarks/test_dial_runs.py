"""A landscape that is measured: which runs are made, and that a table goes on where it ended."""

import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import train_mlx

BENCHMARKS = Path(train_mlx.__file__).parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import dial_runs  # noqa: E402

from agent.script.dials import read_dials  # noqa: E402

SCRIPT = """\
RATE = 0.1  # [0.001, 10.0] log
SHARE = 0.05  # [0.0, 1.0]
LAYERS = 4  # {2, 4, 8, 16}
WORD = "lone"
"""


def test_each_dial_is_turned_by_small_and_large_steps_that_its_range_holds():
    rate, share, layers, word = read_dials(SCRIPT, "cpu")
    assert list(dial_runs.steps_of(rate, 0.25, 2)) == [0.01, 1.0]
    assert list(dial_runs.steps_of(share, 0.1, 1)) == [0.15]  # the step down would leave the range
    assert list(dial_runs.steps_of(layers, 0.1, 1)) == [2, 8]
    assert list(dial_runs.steps_of(layers, 0.25, 2)) == [16]
    assert list(dial_runs.steps_of(word, 0.1, 1)) == []


def test_a_plan_holds_the_start_six_times_each_step_once_and_pairs_of_two_dials():
    trials = dial_runs.plan(read_dials(SCRIPT, "cpu"), seed=7, pairs=3)
    assert [trial.seed for trial in trials if not trial.turned] == [0, 1, 2, 3, 7, 7]
    alone = Counter(next(iter(trial.turned.items())) for trial in trials if len(trial.turned) == 1)
    assert set(alone.values()) == {1}
    assert Counter(name for name, _ in alone) == {"RATE": 4, "SHARE": 2, "LAYERS": 3}
    assert sum(len(trial.turned) == 2 for trial in trials) == 3


def test_a_trial_that_the_table_holds_is_made_once_more_only_where_the_plan_has_it_twice():
    start, turned = dial_runs.Trial({}, 0), dial_runs.Trial({"RATE": 0.2}, 0)
    row = dict(zip(("turned", "seed"), start.key, strict=True)) | {"corpus": "prose"}
    other = row | {"corpus": "source"}
    assert dial_runs.still_to_do([start, turned, start], [row, other], "prose") == [turned, start]
    assert dial_runs.still_to_do([start, turned, start], [row, row], "prose") == [turned]


@pytest.mark.slow
def test_dial_runs_writes_a_row_a_run_and_goes_on_where_its_table_ended(own_cache, tmp_path, tiny_data):
    table = tmp_path / "table.tsv"
    for count in (1, 2):
        done = run("--quick", "--most", "1", "--table", table, "--text", "tiny")
        assert done.returncode == 0, done.stderr
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        assert [(row["turned"], row["seed"]) for row in rows] == [("", str(seed)) for seed in range(count)]
        assert all(1 < float(row["val_bpb"]) < 9 and row["text"] == "tiny" and not row["error"] for row in rows)
    (tmp_path / "other.tsv").write_text("a\tb\n")
    refused = run("--quick", "--table", tmp_path / "other.tsv")
    assert (refused.returncode, "no table of this program" in refused.stderr) == (2, True)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCHMARKS / "dial_runs.py", *words]
    return subprocess.run([str(word) for word in command], env=os.environ, capture_output=True, text=True, timeout=300)
