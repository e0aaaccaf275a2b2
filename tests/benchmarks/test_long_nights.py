"""The costs of a long night and of many workers: nights of the real harness are measured, and counted."""

import json
import sys
from pathlib import Path

import pytest

from agent.records.journal import Journal
from agent.records.place import Place

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import long_night  # noqa: E402
import night_cost  # noqa: E402
import scale  # noqa: E402


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_long_night_is_measured_at_each_size_and_goes_on(tmp_path):
    flat_file, kept = tmp_path / "flat.json", tmp_path / "kept"
    assert long_night.main(["--sizes", "8", "16", "--folder", str(kept), "--json", str(flat_file)]) == 0
    flat = json.loads(flat_file.read_text())
    for key in ("step_s_8", "step_s_16", "status_s", "results_s", "report_s"):
        assert 0 < flat[key] < 60
    assert 20 < flat["memory_mb"] < 1000
    with Journal.read(Place.of(kept / "user" / "train_mlx.py").journal("long")) as journal:
        assert [attempt.number for attempt in journal.attempts() if attempt.runs] == list(range(16 + 1))


def test_jobs_are_counted_while_all_workers_have_work():
    runs = [(20, 30), (21, 31), (31, 41), (36, 46), (41, 51)]
    # Both work from 21 until the last two begin at 36: 9 + 10 + 5 s asleep in 15 s.
    counted = scale.jobs_an_hour([scale.Slept(began, ended, 0.0) for began, ended in runs], 2, 10.0)
    assert counted == pytest.approx(3600 * 24 / 10 / 15)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_several_workers_make_more_jobs_than_one(tmp_path):
    flat_file = tmp_path / "flat.json"
    assert scale.main(["--workers", "1", "3", "--run-s", "2", "--json", str(flat_file)]) == 0
    flat = json.loads(flat_file.read_text())
    assert 0 < flat["jobs_hour_1"] <= 1800
    assert 0.34 < flat["efficiency_3"] < 1.2


def test_the_cost_of_care_is_a_share_of_an_experiment():
    sandboxed = {"tokens_s": 100.0, "lay_out_s": 1.0, "score_s": 5.0, "audit_s": 3.0, "worst_nats": 1e-6}
    costs = night_cost.costs(
        {"sandbox": [sandboxed, sandboxed], "open": [{**sandboxed, "tokens_s": 101.0, "worst_nats": 2e-6}] * 2}
    )
    assert costs["training_slower"] == pytest.approx(0.01)
    assert costs["share_of_each"] == pytest.approx((0.01 * 300 + 1 + 5) / 300)
    assert costs["share_of_kept"] == pytest.approx((0.01 * 300 + 1 + 5 + 3) / 300)
    assert costs["worst_nats"] == 2e-6
