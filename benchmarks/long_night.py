"""What a long night costs: a step of the loop and the commands that look at it, after 100 and 2,000 attempts.

    python benchmarks/long_night.py [--sizes 100 2000] [--steps 6] [--quick] [--json FILE]

Begins a night of the project's own script by the command line, and fills it with attempts: one to three dials of the
incumbent turned, scores from a landscape over the dials (landscapes.py) with the noise of a seed, four in a hundred
crashed, a few kept, a second seed where one looks good. They go in through the journal's own methods, commits and refs
through git, rows through the ledger; what is left out are the folders of the runs. At every size the command line goes
on with the night for some experiments more, with the real driver, search and judge, in a copy of the harness whose
training, scoring and auditing answer at once (scale.py): so what is measured is the harness.

Flat keys of --json, seconds by the clock, N a size:

    step_s_N     from the beginning of one run to that of the next: idea, commit, run, judging, ledger (the median)
    resume_s_N   from the command to the beginning of its first run
    status_s, results_s, report_s    the commands as processes of their own, at the largest size (median of --calls)
    memory_mb    what the loop's process held in its last run, at the largest size
    cpu_s        processor seconds of the loop and its git commands for a step there, the resume included
    growth       step_s of the largest size by that of the smallest
    fill_s       how long the filling took
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import kills
import landscapes
import measure
import scale
from nights import make_repository

from agent.clock import utc_now
from agent.experiment import (
    Attempt,
    Audit,
    Decision,
    Ending,
    Kind,
    Night,
    Proposal,
    Run,
    Score,
    Summary,
    Weights,
    attempt_ref,
    incumbent,
)
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import write_ledger

TAG = "long"
SIGMA_BPB, START_BPB = 0.004, 1.2  # as asleep.py has them
CRASHES = 0.04  # of the attempts
BATCH = 500  # attempts that are committed together
LOG = "\n".join(f"step {at:5d}   99.{at % 10}%  loss 3.{at:04d}  4,012 tokens/s" for at in range(20))
WHY = "ValueError: [matmul] 256 by 320"
PASSED = Audit(256, 0, 1e-6, 1e-7, 2.7)
QUICKLY = ("-c", "core.fsync=none", "-c", "fastimport.unpackLimit=1000000")  # loose objects, as a night leaves them
COMMANDS = {"status": ("status",), "results": ("results",), "report": ("report", "--out", "report.html")}
RUN = ("run", "--tag", TAG, "--proposer", "search", "--sandbox", "off", "--dawn", "0", "--no-report")


# ---- filling a night -------------------------------------------------------------------------------------------------


class Filler:
    """Adds attempts to a night as it stands."""

    def __init__(self, place: Place, journal: Journal) -> None:
        self.place, self.journal, self.night = place, journal, journal.night()
        self.land = landscapes.Landscape("bowl", 0)
        history = journal.attempts()
        best = incumbent(history)
        assert best is not None
        self.count, self.best = len(history), best
        self.commits = {attempt.number: attempt.commit or "" for attempt in history}
        self.seen = {attempt.proposal.script for attempt in history}

    def fill(self, size: int) -> None:
        while self.count < size:
            batch = [self.tried(self.count + more) for more in range(min(BATCH, size - self.count))]
            self.count += len(batch)
            self.commits |= imported(self.place, self.night, batch, self.commits)
            for attempt in batch:
                self.enter(attempt)
        write_ledger(self.place, (self.night, self.journal.attempts()))
        now = self.place.repo.find(self.night.branch)
        self.place.repo.move_ref(self.night.branch, self.commits[self.best.number], now, "filled")

    def tried(self, number: int) -> Attempt:
        """Return an edit of the incumbent with runs and decision; the truth decides, as after many more runs."""
        rng, script, before = random.Random(number), self.best.proposal.script, dials_of(self.best)
        while script in self.seen:
            place = landscapes.place_of(before).copy()
            for dial in rng.sample(range(len(place)), rng.choice((1, 2, 2, 3))):
                place[dial] += rng.uniform(-0.25, 0.25)
            script = self.best.proposal.script.replace(before, landscapes.script_at(place, before))
        self.seen.add(script)
        title = f"dials of edit {number}"
        why = f"By what {number} attempts say about {len(landscapes.DIALS)} dials, it falls."
        attempt = Attempt(number, self.best.number, Proposal(script, title, why, "search"), utc_now())
        loss = self.land.loss(landscapes.place_of(dials_of(attempt)))
        bpb = START_BPB + SIGMA_BPB * (loss - self.land.loss(landscapes.START))
        gain_bpb = SIGMA_BPB * (self.loss_of_best - loss)
        if rng.random() < CRASHES:
            crashed = Run(0, Ending.CRASHED, 1, 12.0, None, f"{LOG}\n{WHY}", peak_bytes=1 << 30)
            return replace(attempt, runs=(crashed,), decision=Decision(Kind.CRASHED, f"exit code 1: {WHY}"))
        looks_good = gain_bpb + rng.gauss(0, SIGMA_BPB) > SIGMA_BPB / 2
        is_kept = looks_good and gain_bpb > SIGMA_BPB / 8
        audit = PASSED if is_kept else None
        runs = tuple(
            a_run(seed, Score(bpb + rng.gauss(0, SIGMA_BPB), 4.6, audit=audit)) for seed in range(1 + looks_good)
        )
        words = f"an estimated {abs(gain_bpb):.6f} {'below' if gain_bpb >= 0 else 'above'} its parent"
        kind, sure = (Kind.KEPT, 0.97) if is_kept else (Kind.WORSE, 0.03)
        attempt = replace(attempt, runs=runs, decision=Decision(kind, words, gain_bpb, sure))
        if is_kept:
            self.best = attempt
        return attempt

    @property
    def loss_of_best(self) -> float:
        return self.land.loss(landscapes.place_of(dials_of(self.best)))

    def enter(self, attempt: Attempt) -> None:
        """Record an attempt as the driver does, step by step."""
        number, journal = attempt.number, self.journal
        journal.add_attempt(number, attempt.parent, attempt.proposal, attempt.started)
        journal.record_commit(number, self.commits[number])
        for run in attempt.runs:
            journal.end_run(journal.start_run(number, run.seed), run)
        assert attempt.decision is not None
        journal.record_decision(number, attempt.decision)
        journal.settle(number)


def dials_of(attempt: Attempt) -> str:
    """Return the part of a script that has its dials: a short text is parsed faster."""
    script = attempt.proposal.script
    return script[script.index("# Shape of the model") : script.index("# Machinery")]


def a_run(seed: int, score: Score) -> Run:
    summary = Summary(300.0, 310.0, 812.4, 11.2, 1.2, 540, 7.9, 4)
    sizes = {"weights_bytes": 31_600_512, "weights": Weights(7_900_000, 31_600_000), "peak_bytes": 1 << 30}
    return Run(seed, Ending.FINISHED, 0, 310.0, summary, LOG, score, **sizes)


def imported(place: Place, night: Night, batch: Sequence[Attempt], known: Mapping[int, str]) -> dict[int, str]:
    """Return attempt → commit, having made the commits and refs of new attempts by one call of git."""
    marks = place.folder(night.tag) / "marks"
    orders = []
    for attempt in batch:
        message, script = f"{attempt.proposal.title}\n\n{attempt.proposal.hypothesis}\n", attempt.proposal.script
        parent = known.get(attempt.parent or 0, f":{attempt.parent}")
        orders.append(
            f"commit {attempt_ref(night.tag, attempt.number)}\nmark :{attempt.number}\n"
            f"committer nightshift <nightshift@localhost> {int(time.time())} +0000\n"
            f"data {len(message.encode())}\n{message}\nfrom {parent}\n"
            f"M 100644 inline {night.script}\ndata {len(script.encode())}\n{script}\n"
        )
    command = ["git", *QUICKLY, "fast-import", "--quiet", f"--export-marks={marks}"]
    subprocess.run(command, cwd=place.repo.root, input="".join(orders).encode(), check=True)
    pairs = [line.split() for line in marks.read_text().splitlines()]
    return {int(mark[1:]): sha for mark, sha in pairs}


def grow(place: Place, size: int) -> None:
    """Fill the night up to a size."""
    with Journal.resume(place.journal(TAG)) as journal:
        Filler(place, journal).fill(size)


# ---- measuring it ----------------------------------------------------------------------------------------------------


def begin(copy: Path, root: Path) -> Place:
    """Begin a night of the project's script, with one experiment."""
    make_repository(root, measure.SCRIPT.read_text())
    scale.night(copy, root, *RUN, "--experiments", "1")
    return Place.of(root / measure.SCRIPT.name)


def gone_on_with(copy: Path, place: Place, known: int, steps: int) -> measure.Flat:
    """Go on with a night of so many attempts by the command line for some experiments more, the first not timed."""
    began = time.time()
    watched = scale.night(copy, place.repo.root, *RUN, "--experiments", str(known + steps))
    runs = [run for run in scale.slept(place.folder(TAG)) if run[0] > began]
    begins = [start for start, _, _ in runs]
    if len(begins) <= steps:
        raise measure.Failed(f"{len(begins)} runs began, {steps + 1} at least were to")
    return {
        "resume_s": begins[0] - began,
        "step_s": statistics.median(after - before for before, after in itertools.pairwise(begins)),
        "memory_mb": runs[-1][2],
        "cpu_s": watched.cpu_s / (steps + 1),
    }


def seconds_of(root: Path, words: tuple[str, ...], calls: int) -> float:
    """Return the median seconds of a command of nightshift."""
    command = [sys.executable, "-P", "-m", "agent", *words]
    watched = (measure.watch(command, env=measure.with_path(), cwd=root, limit_s=600) for _ in range(calls))
    return statistics.median(each.seconds for each in watched)


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    os.environ["NIGHTSHIFT_DATA"] = str(kills.make_corpus(folder))
    copy = scale.sleeping_copy(folder / "copy", 1, 0.0)
    place, fill_s = begin(copy, folder / "user"), 0.0
    flat: measure.Flat = {}
    found: measure.Flat = {}
    for size in args.sizes:
        measure.say(f"filling the night up to {size:,} attempts")
        began = time.monotonic()
        grow(place, size)
        fill_s += time.monotonic() - began
        found = gone_on_with(copy, place, size, args.steps)
        flat |= {f"{name}_{size}": found[name] for name in ("step_s", "resume_s")}
    flat |= {f"{name}_s": seconds_of(place.repo.root, words, args.calls) for name, words in COMMANDS.items()}
    growth = measure.ratio(flat[f"step_s_{args.sizes[-1]}"], flat[f"step_s_{args.sizes[0]}"])
    return {**flat, "memory_mb": found["memory_mb"], "cpu_s": found["cpu_s"], "growth": growth, "fill_s": fill_s}


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "in rising order (default: 100 2000; quick: 100 500)"
    parser.add_argument("--sizes", type=measure.count, nargs="+", metavar="N", help=about)
    about = "experiments that are timed at each size (default: 6; quick: 3)"
    parser.add_argument("--steps", type=measure.count, help=about)
    about = "of each command, of which the median counts (default: 5; quick: 1)"
    parser.add_argument("--calls", type=measure.count, help=about)


DEFAULTS = {"sizes": ((100, 2_000), (100, 500)), "steps": (6, 3), "calls": (5, 1)}
PROGRAM = measure.Program(
    __doc__ or "", compare, lambda args, flat: measure.print_list("A long night", flat), add_options, DEFAULTS
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
