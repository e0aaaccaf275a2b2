"""Who did what when in a night of several workers, and how busy they were."""

import dataclasses
import json
from datetime import UTC, datetime

from charted import attempt, night, record_crew
from json_page import faults
from nights import Grounds, make_repository, unigram

from agent.experiment import LOCAL, Doing, Ending, Kind, Run, Score
from agent.night.lock import only_night
from agent.records.place import Place
from agent.records.record import Record
from agent.view.workers import busy_times, in_order, load_of

CREW = {"gpu 0": Doing.TRAINING, "gpu 1": Doing.AUDITING, "gpu 2": Doing.SCORING}


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def ran(worker: str, began_s: float, train_s: float = 100) -> Run:
    ended, score = at(began_s + train_s), Score(1.0, 20.0)
    return Run(0, Ending.FINISHED, 0, train_s, None, "", score, worker=worker, began=at(began_s), ended=ended)


def crew(*runs: Run) -> Record:
    """A night of attempt 0, which had all these runs, and of three ideas without any."""
    ideas = (attempt(number, Kind.WORSE, 1.0, runs=()) for number in (1, 2, 3))
    return night(attempt(0, Kind.BASELINE, 1.0, runs=runs), *ideas, budget_s=100.0)


def test_a_worker_is_busy_from_the_begin_of_its_run_to_the_end_of_its_scoring_or_to_its_next_run():
    assert busy_times(crew(ran("gpu 1", 1000), ran("gpu 0", 1010), ran("gpu 0", 1120))) == {
        "gpu 0": [(1010, 1120), (1120, 1240)],
        "gpu 1": [(1000, 1120)],
    }
    lost = dataclasses.replace(ran("gpu 0", 1000), ended=None, wall_s=0, score=None, ending=Ending.LOST)
    going_on = dataclasses.replace(lost, began=at(1010), ending=Ending.RUNNING)
    assert busy_times(crew(lost, going_on)) == {"gpu 0": [(1000, 1000)]}  # the night does not run
    assert busy_times(crew(going_on), now_s=1060) == {"gpu 0": [(1010, 1060)]}


def test_the_time_between_two_calls_of_a_night_is_no_idleness():
    found = load_of(crew(ran("a", 0), ran("b", 0), ran("a", 120), ran("b", 10_000), ran("b", 10_120)))
    assert (found.workers, found.at_work_s) == (1, 240 + 240)
    assert found.utilisation == 600 / (2 * 240 + 240)  # two workers, later one
    assert found.experiments_an_hour == 3 / (480 / 3600)
    nothing = load_of(crew())
    assert (nothing.utilisation, nothing.experiments_an_hour) == (None, None)


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
    assert "\nworkers: 3 of 3 busy now, busy for " in told
    assert "\n  gpu 0  training, seed 0: #1 DEPTH 4 → 1\n" in told
    assert faults("status", answer) == []
    assert [one["work"]["doing"] for one in answer["crew"]["workers"]] == ["training", "auditing", "scoring"]


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
