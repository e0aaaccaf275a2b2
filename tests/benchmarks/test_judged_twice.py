"""A recorded night judged twice: as it was, and with seeds that no two scripts share."""

import json
import subprocess
import sys

from nights import PROJECT

PROGRAM = PROJECT / "benchmarks" / "judged_twice.py"


def judged_twice(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False)


def test_seeds_that_scripts_share_make_the_intervals_of_a_recorded_night_narrower(tmp_path):
    figures = tmp_path / "figures.json"
    done = judged_twice("--nights", "five", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    flat = json.loads(figures.read_text())
    assert flat["edits"] == 16
    assert flat["narrower"] < 0.9


def test_a_night_that_is_not_shipped_is_refused():
    assert judged_twice("--nights", "none").returncode == 2
