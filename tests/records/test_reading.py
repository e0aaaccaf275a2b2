"""A night is read from its journal, its shipped record or its rows, and summed up alike."""

import dataclasses
import json
import math
import shutil

import pytest
from eventful import EFFECT, PEEKS, SCRIPT, fill
from nights import PROJECT, Grounds, git, make_repository, unigram

from agent.errors import NightError
from agent.experiment import (
    incumbent,
)
from agent.judging.intervals import Interval
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import known_tags, read_night
from agent.records.record import Record
from agent.records.shipped import ship
from agent.records.summary import summary_of
from agent.view.answer import Measured, plain
from agent.view.course import Stair, lineage, progress
from agent.view.run_files import MOST_POINTS, curve, thinned


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place.of(make_repository(tmp_path_factory.mktemp("facts") / "repository", SCRIPT) / "train_mlx.py")
    fill(place)
    return place


@pytest.fixture(scope="module")
def facts(place):
    return read_night(place, "t")


def test_a_record_is_what_the_attempts_say(place, facts):
    with Journal.read(place.journal("t")) as journal:
        history = journal.outlines()
    assert facts.incumbent == incumbent(history).number == 4
    assert facts.sigma_bpb == noise(history).sigma_bpb
    assert facts.attempts == history
    first, kept, lucky, crash, _, cheat, later, question = facts.attempts
    measured = Measured.of(facts, kept)
    assert (measured.memory_gb, measured.params, measured.tokens_s) == (1.0, 100, 50_000)
    assert facts.usd(crash) == 0.75
    assert [entry.decision.kind for entry in lucky.decisions] == ["provisional", "revoked"]
    assert cheat.runs[0].failure == PEEKS.failure
    assert (later.status, later.kind, [one.decision.kind for one in later.decisions]) == (
        None,
        None,
        ["crashed", "void"],
    )
    assert first.runs[-1].holdout_bpb == pytest.approx(1.59)
    assert not question.is_idea
    assert facts.findings.honest == Interval(**EFFECT)
    assert [(edit.number, edit.runs) for edit in facts.findings.edits] == [(1, 2), (4, 0)]


def test_sources_say_what_they_brought_and_cost(facts):
    sources = {one.source: one for one in summary_of(facts).sources}
    assert (sources["search"].attempts, sources["search"].kept) == (5, 2)
    assert sources["search"].gain_bpb == pytest.approx(0.07 + 0.11)
    llm = sources["llm"]
    assert (llm.calls, llm.failures, llm.tokens_in, llm.usd) == (2, 1, 1000, 0.75)
    assert llm.hours == pytest.approx((3.0 + 12.0) / 3600)


def test_the_staircase_follows_the_decisions_and_rises_where_one_is_revoked(facts):
    course = progress(facts)
    assert [(step.number, step.incumbent) for step in course.staircase] == [
        (0, 0), (1, 1), (2, 2), (3, 1), (4, 4), (5, 4), (6, 4), (7, 4)
    ]  # fmt: skip
    assert course.revocations == ((2, 3),)
    third, fourth = course.staircase[2:4]
    assert fourth.mean_bpb > third.mean_bpb
    half = 1.96 * facts.sigma_bpb / math.sqrt(2)
    assert fourth == Stair(3, pytest.approx(1.43), pytest.approx(1.43 - half), pytest.approx(1.43 + half), 1)
    assert third.high_bpb - third.mean_bpb == pytest.approx(1.96 * facts.sigma_bpb)  # one seed: a wider band


def test_a_night_that_keeps_again_what_it_revoked_goes_on_from_there(place, facts):
    again = facts.attempts[2].decisions[0]
    latest = max(entry.id for one in facts.attempts for entry in one.decisions)
    decisions = *facts.attempts[2].decisions, dataclasses.replace(again, id=latest + 1)
    attempts = list(facts.attempts)
    attempts[2] = dataclasses.replace(attempts[2], decisions=decisions)
    course = progress(dataclasses.replace(facts, attempts=tuple(attempts)))
    assert course.staircase[-1].incumbent == 2
    assert [step.incumbent for step in course.staircase[:-1]] == [0, 1, 2, 1, 4, 4, 4]


def test_lineage_has_all_that_was_ever_kept(facts):
    assert [(one.number, one.parent, one.gain_bpb, one.still_kept) for one in lineage(facts)] == [
        (0, None, None, True), (1, 0, 0.07, True), (2, 1, 0.01, False), (4, 1, 0.11, True)
    ]  # fmt: skip


def test_hours_add_up_to_all_that_was_measured(facts):
    spent = summary_of(facts).hours
    assert spent["asking"] == pytest.approx(12 / 3600)
    assert spent["other"] == pytest.approx((20 + 6) / 3600)  # a run that is repeated, and a dry run
    runs = [run for one in facts.attempts for run in one.runs]
    assert spent["training"] + spent["scoring"] + 20 / 3600 == pytest.approx(sum(run.spent_s for run in runs) / 3600)


def test_a_night_is_summed_up(facts):
    now = summary_of(facts)
    assert (now.kept, now.discarded, now.crashed, now.ideas) == (2, 2, 1, 6)  # one goes on
    assert now.best.number == 4
    assert now.gain.mean_bpb == pytest.approx(1.5 - 1.3)
    assert (now.usd, now.dawn) == (0.75, facts.findings)


def test_json_has_no_number_that_json_lacks(facts):
    decision = dataclasses.replace(facts.attempts[1].decision, gain_bpb=math.nan)
    odd = dataclasses.replace(facts.attempts[1], decision=decision)
    odd_night = dataclasses.replace(facts, attempts=(odd,), turned={1: {"A": (1, math.inf)}})
    told = json.loads(json.dumps(plain(odd_night), allow_nan=False))
    assert set(told) == {field.name for field in dataclasses.fields(Record)}
    assert (told["attempts"][0]["decision"]["gain_bpb"], told["turned"]["1"]) == (None, {"A": [1, None]})
    assert "script" not in told["attempts"][0]["proposal"]


# ---- without a journal -----------------------------------------------------------------------------------------------


def test_a_shipped_night_says_what_its_journal_says(place, facts, tmp_path):
    here = tmp_path / "there"
    shutil.copytree(place.repo.root, here)
    there = Place.of(here / "train_mlx.py")
    ship(there, "t", there.shipped / "t")
    shutil.rmtree(there.nights)
    told = read_night(there, "t")
    assert known_tags(there) == ("t",)
    for field in ("tag", "branch", "device", "budget_s", "noise", "incumbent", "findings", "turned"):
        assert getattr(told, field) == getattr(facts, field), field
    for shipped, one in zip(told.attempts, facts.attempts, strict=True):
        assert shipped == dataclasses.replace(
            one, runs=tuple(dataclasses.replace(run, last_lines="") for run in one.runs)
        )
    assert progress(told) == progress(facts)
    assert lineage(told) == lineage(facts)
    hours = [summary_of(record).hours["training"] for record in (told, facts)]
    assert hours[0] == pytest.approx(hours[1])


def test_every_night_that_came_with_the_project_has_facts():
    project = Place.of(PROJECT / "train_mlx.py")
    tags = [folder.name for folder in project.shipped.glob("*/")]
    assert tags
    assert set(tags) <= set(known_tags(project))
    for tag in known_tags(project):
        told = read_night(project, tag)
        steps = progress(told).staircase
        assert steps[-1].incumbent == told.incumbent
        assert json.dumps(plain(told), allow_nan=False)


def test_an_unknown_or_damaged_night_is_refused_in_one_sentence(place):
    for tag in ("u", "../t", ""):
        with pytest.raises(NightError, match="there are: t"):
            read_night(place, tag)
    (place.shipped / "broken").mkdir(parents=True)
    (place.shipped / "broken" / "night.json").write_text("[]")
    with pytest.raises(NightError, match="broken is damaged"):
        read_night(place, "broken")
    assert known_tags(place) == ("t",)


def test_a_record_whose_attempts_descend_from_later_ones_is_damaged(place, tmp_path):
    shutil.copytree(place.repo.root, tmp_path / "there")
    there = Place.of(tmp_path / "there" / "train_mlx.py")
    ship(there, "t", there.shipped / "t")
    shutil.rmtree(there.nights)
    path = there.shipped / "t" / "attempts.jsonl"
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    fourth = rows[3]["attempt"]
    for changed in ({"parent": 5}, {"parent": 3}, {"number": 4}, {"decision": {"kind": "odd"}}, {"runs": [{}]}):
        odd_rows = [*rows[:3], rows[3] | {"attempt": fourth | changed}, *rows[4:]]
        path.write_text("\n".join(map(json.dumps, odd_rows)))
        with pytest.raises(NightError, match="t is damaged"):
            read_night(there, "t")


def _findings(**changed: object) -> str:
    bpb = {"mean_bpb": 0.1, "low_bpb": 0.05, "high_bpb": 0.15}
    found = {
        "champion": 1, "script": 1, "fresh_runs": 8, "over": "", "fitted": None, "dropping": None,
        "stays": None, "recorded_bpb": 1.0, "believed_bpb": 1.1, "honest": bpb, "holdout": None,
        "edits": [{"number": 1, "effect": bpb, "worthless": 0.1, "runs": 2}], "passengers": [],
    }  # fmt: skip
    facts = {"number": 1, "champion": 1, "fresh": 4, "began": "2026-01-01T00:00:00Z", "findings": found | changed}
    return json.dumps(facts)


def test_a_record_of_another_night_or_with_findings_that_no_dawn_makes_is_damaged(place, tmp_path):
    shutil.copytree(place.repo.root, tmp_path / "there")
    there = Place.of(tmp_path / "there" / "train_mlx.py")
    ship(there, "t", there.shipped / "t")
    shutil.copytree(there.shipped / "t", there.shipped / "other")
    with pytest.raises(NightError, match=r"other is damaged \(it is the record of another night, 't'"):
        read_night(there, "other")
    shutil.rmtree(there.nights)
    path = there.shipped / "t" / "findings.json"
    path.write_text(_findings())
    assert read_night(there, "t").findings is not None
    markup = '<meta http-equiv="refresh" content="0; url=https://example.org">'
    width = {"mean_bpb": 0.1, "low_bpb": None, "high_bpb": markup}
    for changed in ({"champion": markup}, {"script": -1}, {"champion": 99}, {"honest": width}, {"passengers": ["x"]}):
        path.write_text(_findings(**changed))
        with pytest.raises(NightError, match="t is damaged"):
            read_night(there, "t")
    path.unlink()
    first, *others = (path := there.shipped / "t" / "attempts.jsonl").read_text().split("\n")
    row = json.loads(first)
    for changed in ({"parent": 0}, {"runs": [row["attempt"]["runs"][0] | {"ending": "odd"}]}):
        path.write_text("\n".join([json.dumps(row | {"attempt": row["attempt"] | changed}), *others]))
        with pytest.raises(NightError, match="t is damaged"):
            read_night(there, "t")


# ---- curves ----------------------------------------------------------------------------------------------------------


def test_a_long_curve_is_shown_by_its_means():
    points = [(at / 9999, float(at)) for at in range(10_000)]
    shown = thinned(points, MOST_POINTS)
    assert len(shown) == MOST_POINTS
    assert shown == tuple(sorted(shown))
    assert shown[0][1] == pytest.approx(16.5, abs=1)
    assert thinned(points[:5], MOST_POINTS) == tuple(points[:5])


def test_a_curve_is_read_from_the_folder_of_its_run(place):
    out = place.folder("t") / "runs" / "0001" / "seed0" / "out"
    out.mkdir(parents=True)
    (out / "metrics.jsonl").write_text(
        '{"progress": 0.5, "loss": 3.0}\n{"progress": 1.0, "loss": NaN}\n{"progress": 0.9'
    )
    assert curve(place, "t", 1, 0) == ((0.5, 3.0),)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_curve_of_a_real_run_is_read_and_one_without_a_log_is_empty(tmp_path):
    root = make_repository(tmp_path / "repository", unigram(SHARPNESS=0.5))
    Grounds(root).try_scripts("t", [])
    place = Place.of(root / "train_mlx.py")
    points = curve(place, "t", 0, 0)
    assert points
    assert all(0 <= fraction <= 1 and loss > 0 for fraction, loss in points)
    assert curve(place, "t", 1, 0) == curve(place, "../t", 0, 0) == ()
    facts = read_night(place, "t")
    assert (facts.incumbent, facts.attempts[0].commit) == (0, git(root, "rev-parse", facts.branch))
