"""What a long night costs: a step of the loop and the commands that look at it, after 100 and 2,000 attempts.

    python benchmarks/long_night.py [--sizes 100 2000] [--steps 6] [--quick] [--json FILE]

Begins a night of the project's own script by the command line, and fills it with the attempts of a simulated night
(landscapes.py: random dials, the greedy judge). They go in through the journal's own methods, commits and refs through
git, rows through the ledger; what is left out are the folders of the runs. At every size the command line goes on with
the night for some experiments more, with the real driver, search and judge, in a copy of the harness whose training,
scoring and auditing answer at once (scale.py): so what is measured is the harness.

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
from agent.experiment import Attempt, Audit, Night, Run, Status, Summary, Weights, attempt_ref
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import write_ledger

TAG = "long"
START_BPB = 1.2  # of attempt 0, as asleep.py has it
LOG = "\n".join(f"step {at:5d}   99.{at % 10}%  loss 3.{at:04d}  4,012 tokens/s" for at in range(20))
PASSED = Audit(256, 0, 1e-6, 1e-7, 2.7)
QUICKLY = ("-c", "core.fsync=none", "-c", "fastimport.unpackLimit=1000000")  # loose objects, as a night leaves them
COMMANDS = {"status": ("status",), "results": ("results",), "report": ("report", "--out", "report.html")}
RUN = ("run", "--tag", TAG, "--proposer", "search", "--sandbox", "off", "--dawn", "0", "--no-report")


# ---- filling a night -------------------------------------------------------------------------------------------------


class Filler:
    """Adds the attempts of a simulated night to a real one."""

    def __init__(self, place: Place, count: int) -> None:
        self.place = place
        night, world = landscapes.night_of(landscapes.ARMS["random"](0), "bowl", 0, "greedy", count)
        history = night.simulate().history
        self.waiting = [
            world.run(attempt, history) if attempt.status is Status.KEEP else attempt for attempt in history
        ]
        self.lift_bpb = START_BPB - (self.waiting.pop(0).val_bpb or 0.0)
        self.numbers = {0: 0}  # simulated attempt → attempt of the night

    def fill(self, size: int) -> None:
        """Fill the night up to a size."""
        with Journal.resume(self.place.journal(TAG)) as journal:
            night, history = journal.night(), journal.attempts()
            commits = {attempt.number: attempt.commit or "" for attempt in history}
            batch = [self.next_attempt(number) for number in range(len(history), size)]
            commits |= imported(self.place, night, batch, commits)
            for attempt in batch:
                enter(journal, attempt, commits[attempt.number])
            write_ledger(self.place, (night, journal.attempts()))
            kept = [attempt.number for attempt in batch if attempt.status is Status.KEEP]
            if kept:
                now = self.place.repo.find(night.branch)
                self.place.repo.move_ref(night.branch, commits[kept[-1]], now, "filled")

    def next_attempt(self, number: int) -> Attempt:
        """Return the next simulated attempt with the number, the texts and the sizes of a real one."""
        attempt = self.waiting.pop(0)
        self.numbers[attempt.number] = number
        script = measure.SCRIPT.read_text().replace(landscapes.SCRIPT, attempt.proposal.script)
        why = f"By what {number} attempts say about {len(landscapes.DIALS)} dials, it falls."
        proposal = replace(attempt.proposal, script=script, title=f"dials of edit {number}", hypothesis=why)
        return replace(
            attempt, number=number, parent=self.numbers[attempt.parent or 0], started=utc_now(),
            proposal=replace(proposal, source="search"), runs=tuple(map(self.as_real, attempt.runs)),
        )  # fmt: skip

    def as_real(self, run: Run) -> Run:
        if run.score is None or run.score.val_bpb is None:
            return replace(run, wall_s=12.0, last_lines=f"{LOG}\nValueError: [matmul] 256 by 320")
        summary = Summary(300.0, 310.0, 812.4, 11.2, 1.2, 540, 7.9, 4)
        score = replace(run.score, val_bpb=run.score.val_bpb + self.lift_bpb, audit=PASSED)
        sizes = {"weights_bytes": 31_600_512, "weights": Weights(7_900_000, 31_600_000), "peak_bytes": 1 << 30}
        return replace(run, wall_s=310.0, summary=summary, last_lines=LOG, score=score, **sizes)


def enter(journal: Journal, attempt: Attempt, commit: str) -> None:
    """Record an attempt as the driver does, step by step."""
    journal.add_attempt(attempt.number, attempt.parent, attempt.proposal, attempt.started)
    journal.record_commit(attempt.number, commit)
    for run in attempt.runs:
        journal.end_run(journal.start_run(attempt.number, run.seed), run)
    assert attempt.decision is not None
    journal.record_decision(attempt.number, attempt.decision)
    journal.settle(attempt.number)


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


# ---- measuring it ----------------------------------------------------------------------------------------------------


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
    root, fill_s = make_repository(folder / "user", measure.SCRIPT.read_text()), 0.0
    scale.night(copy, root, *RUN, "--experiments", "1")
    place = Place.of(root / measure.SCRIPT.name)
    filler = Filler(place, args.sizes[-1])
    flat: measure.Flat = {}
    found: measure.Flat = {}
    for size in args.sizes:
        measure.say(f"filling the night up to {size:,} attempts")
        began = time.monotonic()
        filler.fill(size)
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
