"""The benchmarks of several workers: they count what they say, on nights of the real harness."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import scale  # noqa: E402


def night_of(folder: Path, slept: list[tuple[int, float, float]]) -> Path:
    for place, (number, began, ended) in enumerate(slept):
        out = folder / "runs" / f"{number:04d}" / f"seed{place}" / "out"
        out.mkdir(parents=True)
        (out / "summary.json").write_text(json.dumps({"slept": [began, ended]}))
    return folder


def test_jobs_are_counted_while_all_workers_have_work(tmp_path):
    alone = [(0, 0, 10), (0, 10, 20), (0, 10, 20)]  # attempt 0's do not count
    two = [(1, 20, 30), (2, 21, 31), (3, 31, 41), (4, 36, 46), (5, 41, 51)]
    # from 21, when both have work, to 36, when the last two begin: 9 + 10 + 5 s asleep in 15 s
    assert scale.jobs_an_hour(night_of(tmp_path, alone + two), 2, 10.0) == pytest.approx(3600 * 24 / 10 / 15)


def test_a_night_that_is_too_short_to_count_is_refused(tmp_path):
    with pytest.raises(scale.measure.Failed, match="give more --rounds"):
        scale.jobs_an_hour(night_of(tmp_path, [(1, 0, 10), (2, 0, 10)]), 2, 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [(), ("--processes",), ("--ray",)])
def test_several_workers_make_more_jobs_than_one(tmp_path, kind):
    if kind == ("--ray",):
        pytest.importorskip("ray")
    flat_file = tmp_path / "flat.json"
    options = ("--workers", "1", "3", "--run-s", "2", *kind, "--json", flat_file)
    command = [sys.executable, BENCHMARKS / "scale.py", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    flat = json.loads(flat_file.read_text())
    prefix = {(): "", ("--processes",): "process_", ("--ray",): "ray_"}[kind]
    assert 0 < flat[f"{prefix}jobs_hour_1"] <= 1800
    assert 0.34 < flat[f"{prefix}efficiency_3"] < 1.2


@pytest.mark.slow
def test_nothing_is_lost_where_workers_and_drivers_are_killed(tmp_path):
    command = [sys.executable, BENCHMARKS / "crew_kills.py", "--quick", "--json", tmp_path / "flat.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "flat.json").read_text())["kills"] == 10
