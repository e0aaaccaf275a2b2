"""How long is a newcomer's first look: README's first command, in a fresh clone, from the command to its last line?

    python benchmarks/first_look.py [--runs 3] [--most-s 180] [--json FILE]

Each run has a clone of HEAD, a home and a cache of its own, so that environment and corpus are made each time; packages
come from uv's cache. The phases are told by the times of what it prints, and by the journal of its night:

    packages    the environment, until nightshift runs        corpus    text, tokenizer, token arrays
    opening     the night: repository, sandbox, journal       training  the budgets of its runs
    processes   start, warming up and saving of those runs    scoring, audits
    rest        ideas, commits, judging, report

Exit code 1 where the median of the runs is above --most-s, or a command fails.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import measure

from agent.records.journal import Journal
from agent.records.place import Place

COMMAND = re.compile(r"^ *(pip install uv && uv run nightshift run .*?) *(?:#.*)?$", re.MULTILINE)
LIMIT_S = 1800.0
OF_CALLER = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "NIGHTSHIFT_DATA")  # the clone has its own
BEGINS, NIGHT, FIRST = "no corpus is prepared yet", "night ", "#0 "  # how the first line of a phase begins


@dataclass(frozen=True)
class Look:
    """Hold one first look: seconds of its phases, and how many runs its night made."""

    packages_s: float
    corpus_s: float
    opening_s: float
    training_s: float
    processes_s: float
    scoring_s: float
    audits_s: float
    rest_s: float
    total_s: float
    runs: int
    kept: int


def command_of_readme() -> str:
    """Return README's first command. Raises Misuse where it has none."""
    found = COMMAND.search((measure.ROOT / "README.md").read_text())
    if found is None:
        raise measure.Misuse("README.md no longer has the command of a first look: correct COMMAND here")
    return found[1]


def look(folder: Path) -> Look:
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


def taken_apart(watched: measure.Watched, place: Place) -> Look:
    """Divide the seconds of a look by what it printed and by its journal."""
    begins_s, night_s, first_s = (
        next(at for at, line in watched.lines if line.startswith(beginning)) for beginning in (BEGINS, NIGHT, FIRST)
    )
    (tag,) = place.tags()
    with Journal.read(place.journal(tag)) as journal:
        night, attempts = journal.night(), journal.attempts()
    runs = [run for attempt in attempts for run in attempt.runs]
    scores = [run.score for run in runs if run.score is not None]
    training_s = len(runs) * night.budget_s
    wall_s = sum(run.wall_s for run in runs)
    scoring_s = sum(score.wall_s for score in scores)
    audits_s = sum(score.audit.wall_s for score in scores if score.audit is not None)
    return Look(
        packages_s=begins_s,
        corpus_s=night_s - begins_s,
        opening_s=first_s - night_s,
        training_s=training_s,
        processes_s=wall_s - training_s,
        scoring_s=scoring_s,
        audits_s=audits_s,
        rest_s=watched.seconds - first_s - wall_s - scoring_s - audits_s,
        total_s=watched.seconds,
        runs=len(runs),
        kept=sum(attempt.status == "keep" for attempt in attempts[1:]),
    )


def compare(args: argparse.Namespace) -> measure.Flat:
    looks = []
    for number in range(args.runs):
        with measure.work_folder(None) as folder:
            looks.append(look(folder))
        measure.say(f"look {number + 1} of {args.runs}: {looks[-1].total_s:.0f} s, {looks[-1].runs} runs")
    columns = {field.name: [getattr(one, field.name) for one in looks] for field in fields(Look)}
    return (
        {"looks": args.runs}
        | {name: statistics.median(values) for name, values in columns.items()}
        | {"longest_s": max(columns["total_s"])}
    )


def print_results(args: argparse.Namespace, flat: measure.Flat) -> None:
    names = [field.name for field in fields(Look)]
    rows = [
        [name.removesuffix("_s"), measure.show(flat[name], ".1f" if name.endswith("_s") else ".0f")] for name in names
    ]
    title = f"A first look, median of {args.runs}: {command_of_readme()}"
    measure.print_table(title, ["phase", "seconds, or count"], rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of the command (default: %(default)s)")
    parser.add_argument(
        "--most-s", type=float, default=180.0, metavar="S", help="for the median (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians as flat keys")
    args = parser.parse_args(argv)
    if args.runs < 1:
        parser.error(f"--runs {args.runs}: one at least")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)

    def body() -> int:
        measure.check_writable(args.json)
        flat = compare(args)
        print_results(args, flat)
        measure.write_json(args.json, flat)
        return int(float(flat["total_s"] or 0) > args.most_s)

    return measure.guarded("first_look", body)


if __name__ == "__main__":
    sys.exit(main())
