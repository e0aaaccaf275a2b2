"""How long is a newcomer's first look: README's first command, in a fresh clone, from the command to its last line?

    python benchmarks/first_look.py [--runs 3] [--most-s 180] [--quick] [--json FILE]

Each run has a clone of HEAD, a home and a cache of its own, so that environment and corpus are made each time; packages
come from uv's cache. Flat keys of --json, medians of the runs: total_s; runs and kept of the night.

Exit code 1 where the median of the runs is above --most-s, or a command fails.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import measure

from agent.experiment import Status
from agent.records.journal import Journal
from agent.records.place import Place

COMMAND = re.compile(r"^ *(pip install uv && uv run nightshift run .*?) *(?:#.*)?$", re.MULTILINE)
LIMIT_S = 1800.0
OF_CALLER = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "NIGHTSHIFT_DATA")  # the clone has its own


def command_of_readme() -> str:
    """Return README's first command. Raises Misuse where it has none."""
    match = COMMAND.search((measure.ROOT / "README.md").read_text())
    if match is None:
        raise measure.Misuse("README.md no longer has the command of a first look: correct COMMAND here")
    return match[1]


def look(folder: Path) -> dict[str, float]:
    """Follow README's first command as a newcomer does, in this empty folder."""
    clone = folder / "nightshift"
    subprocess.run(["git", "clone", "--quiet", measure.ROOT, clone], check=True)
    packages = subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in OF_CALLER} | {
        "HOME": str(folder / "home"),
        "NIGHTSHIFT_CACHE": str(folder / "cache"),
        "UV_CACHE_DIR": packages,
        "PYTHONUNBUFFERED": "1",
    }
    watched = measure.watch(["bash", "-c", command_of_readme()], env=env, cwd=clone, limit_s=LIMIT_S)
    place = Place.of(clone / measure.SCRIPT.name)
    (tag,) = place.tags()
    with Journal.read(place.journal(tag)) as journal:
        attempts = journal.attempts()
    runs, kept = sum(len(attempt.runs) for attempt in attempts), [a for a in attempts[1:] if a.status is Status.KEEP]
    return {"total_s": watched.seconds, "runs": runs, "kept": len(kept)}


def compare(args: argparse.Namespace, folder: Path) -> measure.Flat:
    looks = []
    for number in range(args.runs):
        looks.append(look(folder / f"{number}"))
        measure.say(f"look {number + 1} of {args.runs}: {looks[-1]['total_s']:.0f} s, {looks[-1]['runs']} runs")
    return {name: statistics.median(each[name] for each in looks) for name in looks[0]}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=measure.count, metavar="N", help="of the command (default: 3; quick: 1)")
    about = "for the median (default: %(default)s)"
    parser.add_argument("--most-s", type=measure.amount, default=180.0, metavar="S", help=about)


PROGRAM = measure.Program(
    __doc__ or "",
    compare,
    lambda args, flat: measure.print_list("A first look", flat, ".1f"),
    add_options,
    {"runs": (3, 1)},
    lambda args, flat: flat["total_s"] > args.most_s,
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
