"""The benchmark of long nights: what it fills a night with is what a night leaves, and it measures what it says."""

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

import filled_night  # noqa: E402
import long_night  # noqa: E402


@pytest.mark.slow
def test_a_filled_night_is_one_to_journal_git_and_ledger(tmp_path):
    place = filled_night.make_night(tmp_path / "user")
    filled_night.grow(place, 30)
    filled_night.grow(place, 60)
    with Journal.read(place.journal(filled_night.TAG)) as journal:
        night, history = journal.night(), journal.attempts()
    assert [attempt.number for attempt in history] == list(range(60))
    assert all(attempt.settled and attempt.runs for attempt in history)
    assert {attempt.status for attempt in history} == set(Status)
    assert any(attempt.seeds == 2 for attempt in history if attempt.status is Status.DISCARD)
    kept = [attempt for attempt in history if attempt.status is Status.KEEP]
    assert [attempt.parent for attempt in kept[1:]] == [attempt.number for attempt in kept[:-1]]
    assert len({attempt.proposal.script for attempt in history}) == 60
    assert (place.repo.root / "results.tsv").read_text().splitlines()[1:] == lines_of(night, history)
    assert place.repo.find(night.branch) == incumbent(history).commit
    assert git(place.repo.root, "fsck", "--strict", "--no-dangling") == ""
    for attempt in history:
        assert place.repo.read(f"refs/experiments/long/{attempt.number:04d}", place.script) == attempt.proposal.script


@pytest.mark.slow
def test_the_benchmark_goes_on_with_the_night_that_it_filled(tmp_path):
    flat_file = tmp_path / "flat.json"
    sizes = ("--sizes", "5", "9", "--steps", "1", "--calls", "1")
    command = [sys.executable, BENCHMARKS / "long_night.py", *sizes, "--folder", tmp_path, "--json", flat_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    flat = json.loads(flat_file.read_text())
    for key in ("step_s_5", "step_s_9", "resume_s_9", "propose_s", "status_s", "results_s", "fill_s"):
        assert 0 < flat[key] < 60
    assert 20 < flat["memory_mb"] < 1000
    assert flat["growth"] == pytest.approx(flat["step_s_9"] / flat["step_s_5"], rel=0.01)
    place = Place.of(tmp_path / "user" / "train_mlx.py")
    with Journal.read(place.journal(filled_night.TAG)) as journal:
        history = journal.attempts()
    assert len(history) == 9 + 2
    assert [attempt.proposal.source for attempt in history[-2:]] == ["search", "search"]
    assert all(attempt.settled and attempt.commit and attempt.scores_bpb for attempt in history[-2:])


@pytest.mark.parametrize("options", [["--steps", "0"], ["--sizes", "100", "101"], ["--sizes", "0"]])
def test_sizes_that_leave_no_room_for_steps_are_refused(options, capsys):
    with pytest.raises(SystemExit) as caught:
        long_night.main(options)
    assert caught.value.code == 2
    assert "must be" in capsys.readouterr().err
