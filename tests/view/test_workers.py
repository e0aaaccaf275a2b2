"""Who did what when in a night of several workers, and how busy they were."""

import dataclasses
import json
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from charted import attempt
from charted import night as charted_night
from crews import BETWEEN_S, GPUS, MINUTES_S, SCORING_S, at, record_crew
from json_page import faults
from judged import scored_run
from nights import Grounds, make_repository, unigram
from samples import status_lines

from agent.experiment import LOCAL, Doing, Ending, Kind, NightCall, Proposal, Run, Score, Work
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import read_night
from agent.records.record import Record, of_journal
from agent.records.shipped import of_folder, ship
from agent.view.workers import Crew, busy_times, crew_of, in_order, load_of

JOB_S = MINUTES_S + SCORING_S


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    """Night t: four workers, of whom one is scored, one audited, and two train. Night u: one worker."""
    found = Place.of(make_repository(tmp_path_factory.mktemp("crew") / "repository", unigram()) / "train_mlx.py")
    record_crew(found, GPUS[:4], 12, jobs=4, began_s=time.time() - 6 * JOB_S)
    record_crew(found, ("local",), 3, tag="u")
    return found


def read_crew(journal: Journal, now_s: float | None) -> Crew:
    work = journal.work()
    return crew_of(of_journal(journal), work, now_s)


def ran(worker: str, began_s: float, train_s: float = 100) -> Run:
    ended = at(began_s + train_s)
    score = Score(1.0, 20.0)
    return Run(0, Ending.FINISHED, 0, train_s, None, "", score, worker=worker, began=at(began_s), ended=ended)


def crew(*runs: Run, asked_s: float = 0.0, **facts: object) -> Record:
    """A night of attempt 0, which had all these runs, and of three ideas without any."""
    started = at(10_000 if asked_s else 0)
    first = attempt(0, Kind.BASELINE, 1.0, runs=runs, started=started, asked_s=asked_s)
    ideas = (attempt(number, Kind.WORSE, 1.0, started=at(0), asked_s=0.0) for number in (1, 2, 3))
    return charted_night(first, *ideas, budget_s=100.0, **facts)


def test_a_worker_is_busy_from_the_begin_of_its_run_to_the_end_of_its_scoring():
    (first, second) = busy_times(crew(ran("gpu 1", 1000), ran("gpu 0", 1010)))
    assert (first.worker, first.began_s, first.ended_s) == ("gpu 0", 1010, 1130)
    assert (second.worker, second.began_s, second.ended_s) == ("gpu 1", 1000, 1120)
    early, late = busy_times(crew(ran("gpu 0", 1000), ran("gpu 0", 1110)))  # scored elsewhere: it trains again already
    assert (early.ended_s, late.began_s) == (1110, 1110)


def test_a_run_that_goes_on_is_told_from_one_that_the_harness_did_not_survive():
    lost = dataclasses.replace(ran("gpu 0", 1000), ended=None, wall_s=0, score=None, ending=Ending.LOST)
    (span,) = busy_times(crew(lost))
    assert (span.began_s, span.ended_s, span.ending) == (1000, 1000, "lost")
    going_on = dataclasses.replace(lost, began=at(1010), ending=Ending.RUNNING)
    assert len(busy_times(crew(lost, going_on))) == 1  # the night does not run
    _, span = busy_times(crew(lost, going_on), now_s=1060)
    assert (span.ended_s, span.ending) == (1060, None)


def test_the_time_between_two_calls_of_a_night_is_no_idleness():
    runs = ran("a", 0), ran("b", 0), ran("a", 120), ran("b", 10_000), ran("b", 10_120)
    found = load_of(crew(*runs))
    assert (found.workers, found.at_work_s, found.busy_s) == (1, 240 + 240, 600)
    assert found.utilisation == 600 / (2 * 240 + 240)  # two workers, later one
    assert found.experiments_an_hour == 3 / (480 / 3600)
    assert load_of(crew(*runs, asked_s=9760)).at_work_s == 10_240  # it waited for an idea
    nothing = load_of(crew())
    assert (nothing.utilisation, nothing.experiments_an_hour) == (None, None)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (4, 1)])
def test_each_call_of_a_night_has_the_workers_that_were_recorded_of_it(before, after):
    """A worker without a run was idle, whether the night goes on with more or with fewer, after a pause or at once."""
    runs = ran("a", 1000), ran("b", 1000), ran("a", 1120), ran("a", 1250)
    calls = NightCall(at(990), before), NightCall(at(1245), after)
    found = load_of(crew(*runs, calls=calls))
    assert (found.workers, found.at_work_s) == (after, 240 + 120)
    assert found.utilisation == 480 / (before * 240 + after * 120)
    opened = load_of(crew(*runs, calls=(*calls, NightCall(at(2000), 5))))
    assert (opened.workers, opened.utilisation) == (5, found.utilisation)
    resumed = load_of(crew(*runs, calls=calls[1:]))  # the first was not recorded
    assert resumed.utilisation == 480 / (2 * 240 + after * 120)


def test_status_page_and_record_say_alike_how_busy_a_night_was_that_went_on_with_fewer_workers(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, GPUS[:2], 3, began_s=1000.0)
    with closing(sqlite3.connect(place.journal("t"))) as database:
        database.execute("DELETE FROM calls")
        rows = [(at(900), 6), (at(1000 + 3 * JOB_S), 2)]
        database.executemany("INSERT INTO calls (began, workers) VALUES (?, ?)", rows)
        database.commit()
    ship(place, "t", place.shipped / "t")
    with Journal.read(place.journal("t")) as journal:
        status, night, history = read_crew(journal, None).load, journal.night(), journal.attempts()
        (line,) = [line for line in status_lines(night, history, calls=journal.calls())
                   if line.startswith("workers: ")]  # fmt: skip
    assert f"busy for {status.utilisation:.0%} of " in line
    for facts in (read_night(place, "t"), of_folder(place.shipped / "t")):
        told = load_of(facts)
        assert told.workers == status.workers == 2
        assert told.utilisation == pytest.approx(status.utilisation, abs=0.01)


def test_a_journal_tells_who_is_at_work_and_how_busy_all_were(place):
    with Journal.read(place.journal("t")) as journal:
        crew = read_crew(journal, time.time())
    assert [one.name for one in crew.workers] == list(GPUS[:4])
    assert [(one.name, one.work.doing, one.work.attempt) for one in crew.at_work] == [
        *(("gpu 0", "training", 13), ("gpu 1", "training", 14), ("gpu 2", "auditing", 15), ("gpu 3", "scoring", 16)),
    ]
    assert crew.load.workers == 4
    assert 0.5 < crew.load.utilisation <= 1
    with Journal.read(place.journal("u")) as journal:
        alone = read_crew(journal, None)
    assert not alone.has_several
    assert alone.load.utilisation == pytest.approx(1 - BETWEEN_S / (JOB_S + 5), abs=0.01)


def test_who_scores_or_audits_the_run_of_another_worker_is_told_by_the_journal(place, tmp_path):
    shutil.copyfile(place.journal("t"), tmp_path / "journal.sqlite")
    with Journal.resume(tmp_path / "journal.sqlite") as journal:
        journal.begin(Work("gpu 2", Doing.SCORING, 16, at(time.time()), 0))  # which gpu 3 has trained
        journal.begin(Work("gpu 9", Doing.AUDITING, 15, at(time.time()), 0))  # its first job
        crew = read_crew(journal, time.time())
        assert [(one.name, one.runs > 0, one.work.doing, one.work.attempt) for one in crew.workers[2:]] == [
            *(("gpu 2", True, "scoring", 16), ("gpu 3", True, "scoring", 16), ("gpu 9", False, "auditing", 15)),
        ]
        journal.record_call(4)
        assert journal.work() == ()  # what an earlier call began is over


def test_a_run_that_goes_on_has_no_time_yet(place):
    facts = read_night(place, "t")
    assert {span.attempt for span in busy_times(facts)} & {13, 14, 15, 16} == {15, 16}
    assert {span.worker for span in busy_times(facts)} == set(GPUS[:4])


def test_an_overtaken_attempt_and_its_merge_name_each_other_in_journal_and_record(place):
    facts = read_night(place, "t")
    assert (facts.attempts[5].kind, facts.merged_as[5], facts.attempts[6].proposal.merges) == ("overtaken", 6, 5)
    assert [one.number for one in facts.attempts if one.proposal.merges is not None] == [6, 11]
    ship(place, "t", place.shipped / "t")
    told = of_folder(place.shipped / "t")
    assert told.merged_as == facts.merged_as
    assert [run.worker for run in told.attempts[0].runs] == [run.worker for run in facts.attempts[0].runs]
    assert len(busy_times(told)) == len(busy_times(facts))


def test_status_has_a_line_for_each_worker_that_is_busy(place):
    grounds = Grounds(place.repo.root)
    with only_night(place.repo.common_dir) as tell:
        tell("t", place.folder("t"))
        told = grounds.nightshift("status").stdout
        answer = json.loads(grounds.nightshift("status", "--json").stdout)
        assert grounds.nightshift("stop").stdout == "night t ends after what it runs now\n"
        assert ", ends after the runs in flight; it began" in grounds.nightshift("status").stdout
    assert "\nworkers: 4 of 4 busy now, busy for " in told
    assert "\n  gpu 0  training, seed 0: #13 WARMUP_FRACTION 0.0 → 0.0013" in told
    assert "at work: #13" not in told
    assert faults("status", answer) == []
    assert [one["work"]["doing"] for one in answer["crew"]["workers"]] == [
        "training",
        "training",
        "auditing",
        "scoring",
    ]
    assert "workers" not in grounds.nightshift("status", "u").stdout


def test_status_of_a_night_with_one_worker_tells_the_phase_and_seed_of_its_run(tmp_path):
    place = Place.of(make_repository(tmp_path / "repository", unigram()) / "train_mlx.py")
    record_crew(place, (LOCAL,), 3)
    run = scored_run(7, 1.1)

    def at_work() -> list[str]:
        told = Grounds(place.repo.root).nightshift("status").stdout.splitlines()
        assert not any(line.startswith("workers: ") for line in told)
        return [line for line in told if "#4" in line]

    with only_night(place.repo.common_dir) as tell, Journal.resume(place.journal("t")) as journal:
        tell("t", place.folder("t"))
        journal.add_attempt(4, 0, Proposal(unigram(SHARPNESS=0.3), "blunter", "", "search"), at(time.time()))
        assert at_work() == ["at work: #4 blunter"]  # a dry run is no run yet
        journal.end_run(journal.start_run(4, 7), run)
        journal.begin(Work(LOCAL, Doing.SCORING, 4, at(time.time()), 7))
        assert at_work() == ["at work: scoring, seed 7: #4 blunter"]
        journal.begin(Work(LOCAL, Doing.AUDITING, 4, at(time.time()), 7))
        assert at_work() == ["at work: auditing, seed 7: #4 blunter"]
        journal.begin(Work(LOCAL, Doing.TRAINING, 4, at(time.time()), 8))
        assert at_work() == ["at work: training, seed 8: #4 blunter"]
    assert at_work() == ["unfinished, goes on when the night does: #4 blunter"]


def test_gpu_2_comes_before_gpu_10():
    assert sorted(["gpu 10", "b", "gpu 2", "10.0.0.7 gpu 0"], key=in_order) == [
        "10.0.0.7 gpu 0",
        "b",
        "gpu 2",
        "gpu 10",
    ]
