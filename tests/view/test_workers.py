"""What each worker of a night does now."""

import json

from charted import record_crew
from json_page import faults
from nights import Grounds, make_repository, unigram

from agent.experiment import Doing
from agent.night.lock import only_night
from agent.records.place import Place
from agent.view.workers import in_order

CREW = {"gpu 10": Doing.AUDITING, "gpu 2": Doing.TRAINING}


def test_status_has_a_line_for_each_worker_that_is_busy_in_the_order_of_their_numbers(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, CREW)
    grounds = Grounds(place.repo.root)
    with only_night(place.repo.common_dir) as tell:
        tell("t", place.folder("t"))
        output = grounds.nightshift("status").stdout
        answer = json.loads(grounds.nightshift("status", "--json").stdout)
        assert grounds.nightshift("stop").stdout == "night t ends after what it runs now\n"
        assert ", ends after what runs now; it began" in grounds.nightshift("status").stdout
    workers = "gpu 2: training, seed 0: #2 DEPTH 4 → 2\n  gpu 10: auditing, seed 0: #1 DEPTH 4 → 1"
    assert f"\nworkers: 2 of 2 busy now\n  {workers}\n" in output
    assert faults("status", answer) == []
    assert [worker["work"]["doing"] for worker in answer["crew"]["workers"]] == ["training", "auditing"]
    assert "\nunfinished, goes on when the night does: #1 DEPTH 4 → 1\n" in grounds.nightshift("status").stdout


def test_a_workers_name_may_have_more_digits_than_python_reads():
    endless = f"gpu {'9' * 5000}"
    assert sorted([endless, "gpu 10", "gpu", "gpu 2"], key=in_order) == ["gpu", "gpu 2", "gpu 10", endless]
