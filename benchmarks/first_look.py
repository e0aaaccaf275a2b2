"""How long is a newcomer's first look: README's first command, in a fresh clone, from the command to its last line?

    python benchmarks/first_look.py [--runs 3] [--beside 0] [--quick] [--json FILE]

Each run has a clone of HEAD, a home and a cache of its own, so that environment and corpus are made each time; packages
come from uv's cache. With --beside, as many processes compute without end meanwhile. Flat keys of --json: total_s, the
median of the runs; with_a_keep, the share of the runs that kept an idea; lower, by how much the median run's best
script is below its baseline, as a share. Exit code 1 where a command fails.
"""

import csv
import os
import re
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

import measure
from busy import beside as beside_others
from measure import Count, CountFromZero, Folder

COMMAND = re.compile(r"^ *(pip install uv && uv run nightshift run .*?) *(?:#.*)?$", re.MULTILINE)
OF_CALLER = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "NIGHTSHIFT_DATA")  # the clone has its own


def command_of_readme() -> str:
    """Return README's first command. Raises Misuse where it has none."""
    match = COMMAND.search((measure.ROOT / "README.md").read_text(encoding="utf-8"))
    if match is None:
        raise measure.Misuse("README.md no longer has the command of a first look: correct COMMAND here")
    return match[1]


@dataclass(frozen=True)
class Look:
    """What one first look came to."""

    seconds: float
    kept: int  # ideas
    lower: float  # share of the baseline's val_bpb


def measure_once(folder: Path) -> Look:
    """Follow README's first command as a newcomer does, in this empty folder."""
    clone = folder / "nightshift"
    subprocess.run(["git", "clone", "--quiet", measure.ROOT, clone], check=True)
    shipped = set((clone / "results.tsv").read_text(encoding="utf-8").splitlines())
    packages = subprocess.run(["uv", "cache", "dir"], capture_output=True, encoding="utf-8", check=True).stdout.strip()
    (folder / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in OF_CALLER} | {
        "HOME": str(folder / "home"),
        "NIGHTSHIFT_CACHE": str(folder / "cache"),
        "UV_CACHE_DIR": packages,
        "PYTHONUNBUFFERED": "1",
    }
    seconds = measure.watch(["bash", "-c", command_of_readme()], env=env, cwd=clone, limit_s=1800).seconds
    lines = (clone / "results.tsv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader([lines[0], *(line for line in lines[1:] if line not in shipped)], delimiter="\t")
    kept = [float(row["val_bpb"]) for row in rows if row["status"] == "keep"]
    return Look(seconds, len(kept) - 1, 1 - min(kept) / kept[0])


@measure.program(runs=1)
def main(*, folder: Folder, runs: Count = 3, beside: CountFromZero = 0) -> measure.Flat:
    """Measure several times, each time as a newcomer.

    Args:
        runs: of the command
        beside: other processes that compute meanwhile
    """
    looks = []
    for number in range(runs):
        with beside_others(beside):
            looks.append(measure_once(folder / f"{number}"))
        words = f"{looks[-1].kept} kept, val_bpb lower by {looks[-1].lower:.1%}"
        measure.say(f"run {number + 1} of {runs}: {looks[-1].seconds:.0f} s, {words}")
    return {
        "total_s": statistics.median(look.seconds for look in looks),
        "with_a_keep": statistics.fmean(look.kept > 0 for look in looks),
        "lower": statistics.median(look.lower for look in looks),
    }


if __name__ == "__main__":
    raise SystemExit(main())
