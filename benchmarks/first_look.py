"""How long is a newcomer's first look: README's first command, in a fresh clone, from the command to its last line?

    python benchmarks/first_look.py [--runs 3] [--most-s 180] [--quick] [--json FILE]

Each run has a clone of HEAD, a home and a cache of its own, so that environment and corpus are made each time; packages
come from uv's cache. Flat keys of --json, medians of the runs: total_s; packages_s, until nightshift runs; corpus_s,
until the night begins; training_s, the budgets of its runs; scoring_s, with the audits; rest_s; runs, kept.

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

from agent.records.journal import Journal
from agent.records.place import Place

COMMAND = re.compile(r"^ *(pip install uv && uv run nightshift run .*?) *(?:#.*)?$", re.MULTILINE)
LIMIT_S = 1800.0
OF_CALLER = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "NIGHTSHIFT_DATA")  # the clone has its own
BEGINS, NIGHT = "no corpus is prepared yet", "night "  # how the first line of a phase begins


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
    return taken_apart(watched, Place.of(clone / measure.SCRIPT.name))


def taken_apart(watched: measure.Watched, place: Place) -> dict[str, float]:
    """Divide the seconds of a look by what it printed and by its journal."""
    begins_s, night_s = (
        next(at for at, line in watched.lines if line.startswith(beginning)) for beginning in (BEGINS, NIGHT)
    )
    (tag,) = place.tags()
    with Journal.read(place.journal(tag)) as journal:
        budget_s, attempts = journal.night().budget_s, journal.attempts()
    runs = [run for attempt in attempts for run in attempt.runs]
    scores = [run.score for run in runs if run.score is not None]
    scoring_s = sum(score.wall_s + (score.audit.wall_s if score.audit else 0.0) for score in scores)
    training_s = len(runs) * budget_s
    return {
        "total_s": watched.seconds,
        "packages_s": begins_s,
        "corpus_s": night_s - begins_s,
        "training_s": training_s,
        "scoring_s": scoring_s,
        "rest_s": watched.seconds - night_s - training_s - scoring_s,
        "runs": len(runs),
        "kept": sum(attempt.status == "keep" for attempt in attempts[1:]),
    }


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
