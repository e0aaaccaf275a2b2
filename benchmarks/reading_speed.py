"""What it costs to look at a night: `status`, `results` and `report` after 100, 1,000 and 10,000 attempts.

    python benchmarks/reading_speed.py [--sizes 100 1000 10000] [--calls 5] [--quick] [--json FILE]

Fills nights as long_night.py does, or takes those that an earlier call has left in --folder. Then it gives each command
to a fresh process, several times, start of Python included. Seconds are the median's by the clock; beside them
stand the processor's, which other programs on a shared machine change less.

Keys of --json, N a size, X one of: status, status_json, results, report

    X_s_N, X_cpu_s_N    by the clock; of the processor, in the process and in those that it starts (medians of --calls)
    first_status_s_N, first_status_cpu_s_N    the first `status` after a result: it learns the noise again
    report_mb_N         the size of the page
    fill_s              how long the filling took; 0 where nothing was to be filled
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import measure
from filled_night import TAG, grow, make_night

from agent.records.journal import Journal
from agent.records.place import Place

SIZES, QUICK_SIZES = (100, 1_000, 10_000), (100, 500)
LIMIT_S = 600.0
PAGE = "report.html"
COMMANDS = {
    "status": ("status",),
    "status_json": ("status", "--json"),
    "results": ("results",),
    "report": ("report", "--out", PAGE),
}


@dataclass(frozen=True)
class Spent:
    """The seconds of one call."""

    clock_s: float
    cpu_s: float


def call(root: Path, words: tuple[str, ...]) -> Spent:
    """Give one command to a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-P", "-m", "agent", *words]
    watched = measure.watch(command, env=measure.with_path(), cwd=root, limit_s=LIMIT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(watched.seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(place: Place, size: int, calls: int) -> measure.Flat:
    """At one size."""
    root, flat = place.repo.root, measure.Flat()
    with Journal.resume(place.journal(TAG)) as journal:
        journal.record_decision(0, journal.attempt(0).decision)  # the noise has to be learnt again
        journal.settle(0)
    first = call(root, ("status",))
    flat |= {f"first_status_s_{size}": first.clock_s, f"first_status_cpu_s_{size}": first.cpu_s}
    for name, words in COMMANDS.items():
        spent = [call(root, words) for _ in range(calls)]
        flat[f"{name}_s_{size}"] = statistics.median(one.clock_s for one in spent)
        flat[f"{name}_cpu_s_{size}"] = statistics.median(one.cpu_s for one in spent)
    if (root / PAGE).exists():
        flat[f"report_mb_{size}"] = (root / PAGE).stat().st_size / 1e6
    return flat


def compare(args: argparse.Namespace) -> measure.Flat:
    flat, fill_s = measure.Flat(), 0.0
    with measure.work_folder(args.folder) as folder:
        for size in args.sizes:
            root = folder / f"n{size}"
            if root.exists():
                place = Place.of(root / measure.SCRIPT.name)
            else:
                measure.say(f"filling a night of {size:,} attempts")
                place = make_night(root)
                fill_s += grow(place, size)
            flat |= measured(place, size, args.calls)
    return {**flat, "fill_s": fill_s}


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    def row(name: str, key: str, form: str) -> list[str]:
        return [name, *(measure.show(flat.get(f"{key}_{size}"), form) for size in args.sizes)]

    rows = [
        row("the first status after a result, s", "first_status_s", ".2f"),
        row("  of the processor, s", "first_status_cpu_s", ".2f"),
    ]
    for name, words in COMMANDS.items():
        rows += [
            row(f"nightshift {' '.join(words)}, s", f"{name}_s", ".2f"),
            row("  of the processor, s", f"{name}_cpu_s", ".2f"),
        ]
    rows += [row("the page, MB", "report_mb", ".2f")] if "report" in COMMANDS else []
    measure.print_table("looking at a night", ("", *(f"{size:,} attempts" for size in args.sizes)), rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="default: 100 1000 10000; quick: 100 500")
    parser.add_argument("--calls", type=int, help="of each command, of which the median counts (default: 5; quick: 3)")
    parser.add_argument("--quick", action="store_true", help="under a minute")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work here, keep the nights, and use them again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as flat keys")
    args = parser.parse_args(argv)
    args.sizes = tuple(args.sizes or (QUICK_SIZES if args.quick else SIZES))
    args.calls = args.calls if args.calls is not None else 3 if args.quick else 5
    if min(args.calls, args.sizes[0]) < 1 or any(after <= before for before, after in itertools.pairwise(args.sizes)):
        parser.error("--calls and --sizes must be above zero, and each size larger than the one before")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    return measure.guarded("reading_speed", lambda: measure.reported(args, compare, print_results))


if __name__ == "__main__":
    sys.exit(main())
