"""What a long night costs: a step of the loop and the commands that show it, after 100 and 2,000 attempts.

    python benchmarks/long_night.py [--sizes 100 2000] [--quick] [--json FILE]

A night of the project's own script, by the command line, in a copy of the harness whose training, scoring and auditing
answer at once (scale.py): plan, search, judge, journal, repository and results are real, so what is measured is the
harness. It stops at each size, and goes on. 2,000 attempts take a quarter of an hour.

Flat keys of --json, seconds by the clock, N a size:

    step_s_N     from the beginning of one run to that of the next, the median of the last ones before the size: idea,
                 commit, run, judging, results
    status_s, results_s, report_s    the commands as processes of their own, at the largest size (median of five)
    memory_mb    what the loop's process held in the last run before the largest size
"""

import itertools
import os
import statistics
import sys
from collections.abc import Sequence

import measure
import scale
from measure import Count, Folder
from nights import make_repository

STEPS, CALLS = 20, 5  # the median of 5 calls counts
COMMANDS = {"status": ("status",), "results": ("results",), "report": ("report", "--out", "report.html")}


@measure.program(sizes=(20, 60))
def main(*, folder: Folder, sizes: Sequence[Count] = (100, 2_000)) -> measure.Flat:
    """Run a night to each size, and show it there.

    Args:
        sizes: attempts, in rising order
    """
    os.environ["NIGHTSHIFT_DATA"] = str(measure.make_corpus(folder))
    copy = scale.sleeping_copy(folder / "copy", 1, 0.0)
    root = make_repository(folder / "user", measure.SCRIPT.read_text(encoding="utf-8"))

    words = (
        "run",
        "--tag",
        "long",
        "--proposer",
        "search",
        "--sandbox",
        "off",
        "--confirmation-runs",
        "0",
        "--no-report",
    )
    flat: measure.Flat = {}
    for size in sizes:
        measure.say(f"up to {size:,} attempts")
        scale.night(copy, root, *words, "--experiments", str(size))
        runs = scale.slept(root / "experiments" / "nights" / "long")
        begins = [run.began for run in runs[-STEPS:]]
        flat[f"step_s_{size}"] = statistics.median(after - begin for begin, after in itertools.pairwise(begins))
        flat["memory_mb"] = runs[-1].memory_mb
    for name, asked in COMMANDS.items():
        command = [sys.executable, "-P", "-m", "agent", *asked]
        calls = (measure.watch(command, env=measure.with_path(), cwd=root, limit_s=600) for _ in range(CALLS))
        flat[f"{name}_s"] = statistics.median(each.seconds for each in calls)
    return flat


if __name__ == "__main__":
    raise SystemExit(main())
