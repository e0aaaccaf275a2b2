"""How long is a newcomer's first look: README's first command, in a fresh clone, from the command to its last line?

    python benchmarks/first_look.py [--runs 3] [--quick] [--json FILE]

Each run has a clone of HEAD, a home and a cache of its own, so that environment and corpus are made each time; packages
come from uv's cache. Flat key of --json: total_s, the median of the runs. Exit code 1 where a command fails.
"""

import os
import re
import statistics
import subprocess
from pathlib import Path

import measure
from measure import Count, Folder

COMMAND = re.compile(r"^ *(pip install uv && uv run nightshift run .*?) *(?:#.*)?$", re.MULTILINE)
OF_CALLER = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "NIGHTSHIFT_DATA")  # the clone has its own


def command_of_readme() -> str:
    """Return README's first command. Raises Misuse where it has none."""
    match = COMMAND.search((measure.ROOT / "README.md").read_text(encoding="utf-8"))
    if match is None:
        raise measure.Misuse("README.md no longer has the command of a first look: correct COMMAND here")
    return match[1]


def measure_once(folder: Path) -> float:
    """Follow README's first command as a newcomer does, in this empty folder, and return the seconds."""
    clone = folder / "nightshift"
    subprocess.run(["git", "clone", "--quiet", measure.ROOT, clone], check=True)
    packages = subprocess.run(["uv", "cache", "dir"], capture_output=True, encoding="utf-8", check=True).stdout.strip()
    (folder / "home").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in OF_CALLER} | {
        "HOME": str(folder / "home"),
        "NIGHTSHIFT_CACHE": str(folder / "cache"),
        "UV_CACHE_DIR": packages,
        "PYTHONUNBUFFERED": "1",
    }
    return measure.watch(["bash", "-c", command_of_readme()], env=env, cwd=clone, limit_s=1800).seconds


@measure.program(runs=1)
def main(*, folder: Folder, runs: Count = 3) -> measure.Flat:
    """Measure several times, each time as a newcomer.

    Args:
        runs: of the command
    """
    times_s = []
    for number in range(runs):
        times_s.append(measure_once(folder / f"{number}"))
        measure.say(f"run {number + 1} of {runs}: {times_s[-1]:.0f} s")
    return {"total_s": statistics.median(times_s)}


if __name__ == "__main__":
    raise SystemExit(main())
