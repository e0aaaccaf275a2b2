"""What each worker of a night does now."""

import json

from charted import record_crew
from json_page import faults
from nights import Grounds, make_repository, unigram

from agent.experiment import LOCAL, Doing
from agent.night.lock import only_night
from agent.records.place import Place
from agent.view.workers import in_order

CREW = {"gpu 0": Doing.TRAINING, "gpu 1": Doing.AUDITING, "gpu 2": Doing.SCORING}


def test_status_has_a_line_for_each_worker_that_is_busy(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, CREW)
    grounds = Grounds(place.repo.root)
    with only_night(place.repo.common_dir) as tell:
        tell("t", place.folder("t"))
        told = grounds.nightshift("status").stdout
        answer = json.loads(grounds.nightshift("status", "--json").stdout)
        assert grounds.nightshift("stop").stdout == "night t ends after what it runs now\n"
        assert ", ends after what runs now; it began" in grounds.nightshift("status").stdout
    assert "\nworkers: 3 of 3 busy now\n  gpu 0: training, seed 0: #1 DEPTH 4 → 1\n" in told
    assert faults("status", answer) == []
    assert [worker["work"]["doing"] for worker in answer["crew"]["workers"]] == ["training", "auditing", "scoring"]


def test_status_of_a_night_with_one_worker_tells_the_phase_and_seed_of_its_run(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, {LOCAL: Doing.SCORING})

    def at_work() -> list[str]:
        told = Grounds(place.repo.root).nightshift("status").stdout.splitlines()
        assert not any(line.startswith("workers: ") for line in told)
        return [line for line in told if "#1" in line]

    with only_night(place.repo.common_dir) as tell:
        tell("t", place.folder("t"))
        assert at_work() == ["at work: scoring, seed 0: #1 DEPTH 4 → 1"]
    assert at_work() == ["unfinished, goes on when the night does: #1 DEPTH 4 → 1"]


def test_gpu_2_comes_before_gpu_10():
    names = ["gpu 10", "b", "gpu 2", "10.0.0.7 gpu 0"]
    assert sorted(names, key=in_order) == ["10.0.0.7 gpu 0", "b", "gpu 2", "gpu 10"]
