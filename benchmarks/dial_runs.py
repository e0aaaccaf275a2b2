"""What is each dial of train_mlx.py worth on this device? One run for each value of a dial, and for pairs of dials.

    python benchmarks/dial_runs.py [--table TABLE] [--budget-s 40] [--gpus 4] [--minutes 25] [--text NAME] [--pairs 20]
                                   [--seed 0] [--quick] [--json FILE]

A landscape that was measured, for `landscapes.py`. What tells most comes first, as an hour of GPUs ends early: the
script as it is, with four seeds; every dial a small step down and up; the script again; every dial a large step down
and up; the script again; pairs of small steps, drawn by a fixed seed. A small step of a range is a tenth of it and a
large one a quarter, on the range's own scale; a step of a choice leads to the next or the second next value. All runs
but the first four have one seed: two scripts that are alike, run with one seed, differ less than their scores
scatter.

The table, tab-separated, gets a row when a run ends: what was turned, the seed, and the figures of its summary, which
are empty where it failed. What the table holds of a corpus is not run again on it. The corpus is the selected one
(prepare.py).

Flat keys of --json: runs and failed, of this call; rows, of the table; device.
"""

import csv
import itertools
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import measure
from measure import Count, Folder, Seconds

from agent.cli.options import read_by
from agent.lab.numbers import whole
from agent.script.dials import Choices, Dial, Range, Value, searched, show

SMALL_STEP, LARGE_STEP = 0.1, 0.25  # shares of a range
BASELINE_SEEDS = range(4)
FIGURES = ("val_bpb", "total_tokens_M", "num_steps", "num_params_M", "peak_vram_mb", "training_seconds")  # in a summary
COLUMNS = ("turned", "seed", *FIGURES, "budget_s", "text", "corpus", "device", "commit", "error")
MOST_BEYOND_S = 300.0  # a run may take this long beyond its budget
Turned = Mapping[str, Value]  # dials by name, with their new values


@dataclass(frozen=True)
class Trial:
    """One run to make: the script with these dials turned."""

    turned: Turned
    seed: int

    @property
    def key(self) -> tuple[str, str]:
        return "; ".join(f"{name}={show(value)}" for name, value in self.turned.items()), str(self.seed)


# ---- the plan --------------------------------------------------------------------------------------------------------


def plan(dials: Sequence[Dial], seed: int, pairs: int) -> list[Trial]:
    """Return all trials in the order of their worth."""
    small = [{dial.name: value} for dial in dials for value in steps_of(dial, SMALL_STEP, 1)]
    large = [{dial.name: value} for dial in dials for value in steps_of(dial, LARGE_STEP, 2)]
    rng = random.Random(seed)
    both = [one | other for one, other in itertools.combinations(small, 2) if one.keys() != other.keys()]
    return [
        *(Trial({}, each) for each in BASELINE_SEEDS),
        *(Trial(turned, seed) for turned in rng.sample(small, len(small))),
        Trial({}, seed),
        *(Trial(turned, seed) for turned in rng.sample(large, len(large))),
        Trial({}, seed),
        *(Trial(turned, seed) for turned in rng.sample(both, min(pairs, len(both)))),
    ]


def steps_of(dial: Dial, share: float, places: int) -> Iterator[Value]:
    """Yield the values below and above a dial's: a share of its range away, or so many places among its choices."""
    match dial.span:
        case Choices(values) if dial.value in values:
            at = values.index(dial.value)
            yield from (values[place] for place in (at - places, at + places) if 0 <= place < len(values))
        case Range(low, high, log) if isinstance(dial.value, int | float):
            for to in (-share, share):
                value = dial.value * (high / low) ** to if log else dial.value + to * (high - low)
                if low <= (rounded := float(f"{value:.3g}")) <= high:
                    yield rounded


def still_to_do(trials: Sequence[Trial], rows: Sequence[Mapping[str, str]], corpus: str) -> list[Trial]:
    """Leave out a trial for each row of the table that holds it on this corpus."""
    done = Counter((row["turned"], row["seed"]) for row in rows if row["corpus"] == corpus)
    left = []
    for trial in trials:
        if done[trial.key]:
            done[trial.key] -= 1
        else:
            left.append(trial)
    return left


# ---- the table -------------------------------------------------------------------------------------------------------


def read_rows(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table, none where there is no file; raise Misuse for another kind of file."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t")
            rows = list(reader)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise measure.Misuse(f"--table {table} cannot be read ({error}): name another file") from error
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise measure.Misuse(f"--table {table} is no table of this program: name another file")
    return rows


def add_row(table: Path, row: Mapping[str, Any]) -> None:
    is_new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n", restval="")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


# ---- the runs --------------------------------------------------------------------------------------------------------


class Runs:
    """Make trials, each on a GPU and a share of the cores of its own, and write a row of the table for each."""

    def __init__(
        self, table: Path, folder: Path, corpus: Path, gpus: int, ends_at: float, shared: Mapping[str, Any]
    ) -> None:
        self._table, self._folder, self._corpus, self._ends_at = table, folder, corpus, ends_at
        self._gpus, self._free, self._lock = gpus, queue.SimpleQueue[int](), threading.Lock()
        self._shared = shared  # all rows share it
        self._longest_s = 0.0
        for gpu in range(gpus):
            self._free.put(gpu)

    def make(self, trial: Trial) -> bool | None:
        """Return whether a trial has a score; None, and no row, where no time is left for it."""
        gpu, began = self._free.get(), time.monotonic()
        try:
            if began + self._longest_s > self._ends_at:
                return None
            figures, error = self._run(trial, gpu)
        finally:
            self._free.put(gpu)
        turned, seed = trial.key
        with self._lock:
            self._longest_s = max(self._longest_s, time.monotonic() - began)
            add_row(self._table, {"turned": turned, "seed": seed, **figures, **self._shared, "error": error})
        measure.say(f"{turned or 'as it is'}, seed {seed}: {figures.get('val_bpb', error)}")
        return not error

    def _run(self, trial: Trial, gpu: int) -> tuple[dict[str, Any], str]:
        """Return the figures of a run's summary, and in one line why there are none."""
        own, budget_s = self._folder / f"gpu{gpu}", self._shared["budget_s"]
        env = measure.fresh_caches(own / "caches", self._corpus)
        prefix: list[str] = []
        if self._gpus > 1:
            env["CUDA_VISIBLE_DEVICES"] = str(gpu)
            cores = sorted(os.sched_getaffinity(0))[gpu :: self._gpus]
            prefix = ["taskset", "-c", ",".join(map(str, cores))]
        settings = [f"{name}={value!r}" for name, value in trial.turned.items()]
        script = measure.overwritten(measure.SCRIPT, settings, own)
        words = [*prefix, sys.executable, script, "--budget-s", budget_s, "--seed", trial.seed, "--out", own]
        (own / "summary.json").unlink(missing_ok=True)
        try:
            measure.watch([str(word) for word in words], env=env, cwd=measure.ROOT, limit_s=budget_s + MOST_BEYOND_S)
        except measure.Failed as failed:
            return {}, str(failed).splitlines()[-1].strip()
        summary = json.loads((own / "summary.json").read_bytes())
        return {name: summary[name] for name in FIGURES}, ""


@measure.program(budget_s=2.0, most=3)
def main(
    *,
    folder: Folder,
    table: Path | None = None,
    budget_s: Seconds = 40.0,
    gpus: Count = 1,
    minutes: Seconds = 600.0,
    text: str = "",
    commit: str = "",
    pairs: Annotated[int, read_by(whole(0))] = 20,
    seed: Annotated[int, read_by(whole(0))] = 0,
    most: Count = 10**6,
) -> measure.Flat:
    """Make the runs that a table does not hold yet.

    Args:
        table: the file to go on with (default: a new one in --folder)
        budget_s: seconds of training
        gpus: how many GPUs work beside each other
        minutes: begin no run that would end later, by the longest so far
        text: a name of the corpus for readers
        commit: of the code, where it lies in no clone
        pairs: how many pairs of dials are turned
        seed: of all runs but the first baselines
        most: how many runs to make at most
    """
    table = table or folder / "dial_runs.tsv"
    began, rows = time.monotonic(), read_rows(table)
    facts = measure.describe(measure.SCRIPT)
    head = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=measure.ROOT, capture_output=True)
    shared = {
        "budget_s": budget_s, "text": text, "corpus": facts["corpus"]["fingerprint"],
        "device": facts["device"]["name"], "commit": commit or head.stdout.decode().strip(),
    }  # fmt: skip
    dials = searched(measure.SCRIPT.read_text(encoding="utf-8"), facts["device"]["kind"])
    trials = still_to_do(plan(dials, seed, pairs), rows, shared["corpus"])[:most]
    runs = Runs(table.resolve(), folder, Path(facts["corpus"]["folder"]), gpus, began + 60 * minutes, shared)
    with ThreadPoolExecutor(gpus) as pool:
        made = [ended for ended in pool.map(runs.make, trials) if ended is not None]
    return {"runs": len(made), "failed": made.count(False), "rows": len(rows) + len(made), "device": shared["device"]}


if __name__ == "__main__":
    raise SystemExit(main())
