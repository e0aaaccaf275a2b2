"""The costs of a long night and of many workers: nights of the real harness are measured, and counted as said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from nights import git

from agent.experiment import Status, incumbent
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.results import lines_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import long_night  # noqa: E402
import night_cost  # noqa: E402
import scale  # noqa: E402


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_filled_night_is_one_to_journal_git_and_ledger_and_goes_on(tmp_path):
    flat_file = tmp_path / "flat.json"
    sizes = ["--sizes", "30", "60", "--steps", "2", "--calls", "1"]
    assert long_night.PROGRAM.main([*sizes, "--folder", str(tmp_path / "kept"), "--json", str(flat_file)]) == 0
    flat = json.loads(flat_file.read_text())
    for key in ("step_s_30", "step_s_60", "resume_s_60", "status_s", "results_s", "report_s", "cpu_s", "fill_s"):
        assert 0 < flat[key] < 60
    assert 20 < flat["memory_mb"] < 1000
    assert flat["growth"] == pytest.approx(flat["step_s_60"] / flat["step_s_30"], rel=0.01)
    place = Place.of(tmp_path / "kept" / "user" / "train_mlx.py")
    with Journal.read(place.journal(long_night.TAG)) as journal:
        night, history = journal.night(), journal.attempts()
    assert [attempt.number for attempt in history] == list(range(60 + 3))
    assert all(attempt.settled and attempt.runs for attempt in history)
    assert {attempt.status for attempt in history} >= {Status.KEEP, Status.DISCARD}
    assert len({attempt.proposal.script for attempt in history}) == len(history)
    assert (place.repo.root / "results.tsv").read_text().splitlines()[1:] == lines_of(night, history)
    assert place.repo.find(night.branch) == incumbent(history).commit
    assert git(place.repo.root, "fsck", "--strict", "--no-dangling") == ""
    for attempt in history:
        assert place.repo.read(f"refs/experiments/long/{attempt.number:04d}", place.script) == attempt.proposal.script


def test_jobs_are_counted_while_all_workers_have_work():
    runs = [(20, 30), (21, 31), (31, 41), (36, 46), (41, 51)]
    # from 21, when both have work, to 36, when the last two begin: 9 + 10 + 5 s asleep in 15 s
    counted = scale.jobs_an_hour([(began, ended, 0.0) for began, ended in runs], 2, 10.0)
    assert counted == pytest.approx(3600 * 24 / 10 / 15)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("kind", [(), ("--ray",)])
def test_several_workers_make_more_jobs_than_one(tmp_path, kind):
    if kind == ("--ray",):
        pytest.importorskip("ray")
    flat_file = tmp_path / "flat.json"
    assert scale.PROGRAM.main(["--workers", "1", "3", "--run-s", "2", *kind, "--json", str(flat_file)]) == 0
    flat, prefix = json.loads(flat_file.read_text()), "ray_" if kind else ""
    assert 0 < flat[f"{prefix}jobs_hour_1"] <= 1800
    assert 0.34 < flat[f"{prefix}efficiency_3"] < 1.2


@pytest.mark.slow
def test_nothing_is_lost_where_workers_and_drivers_are_killed(tmp_path):
    words = [sys.executable, BENCHMARKS / "crew_kills.py", "--quick", "--json", tmp_path / "flat.json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)  # it adopts orphans
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "flat.json").read_text())["kills"] == 10


def test_the_cost_of_care_is_a_share_of_an_experiment():
    boxed = {"tokens_s": 100.0, "lay_out_s": 1.0, "score_s": 5.0, "audit_s": 3.0, "worst_nats": 1e-6}
    costs = night_cost.costs({"box": [boxed, boxed], "open": [{**boxed, "tokens_s": 101.0, "worst_nats": 2e-6}] * 2})
    assert costs["training_slower"] == pytest.approx(0.01)
    assert costs["share_of_each"] == pytest.approx((0.01 * 300 + 1 + 5) / 300)
    assert costs["share_of_kept"] == pytest.approx((0.01 * 300 + 1 + 5 + 3) / 300)
    assert costs["worst_nats"] == 2e-6
