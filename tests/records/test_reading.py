"""A night is read from its journal, its shipped record or its rows, and summed up alike."""

import dataclasses
import json
import shutil

import pytest
from eventful import EFFECT, SCRIPT, fill
from nights import PROJECT, make_repository

from agent.errors import NightError
from agent.experiment import incumbent
from agent.judging.noise import noise
from agent.records.journal import Journal
from agent.records.place import Place
from agent.records.reading import known_tags, read_night
from agent.records.shipped import ship
from agent.records.summary import summary_of
from agent.view.answer import plain
from agent.view.course import progress


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
    first, _, lucky, crash, _, _, later, question = facts.attempts
    assert facts.usd(crash) == 0.75
    assert [entry.decision.kind for entry in lucky.decisions] == ["provisional", "revoked"]
    assert (later.status, [one.decision.kind for one in later.decisions]) == (None, ["crashed", "void"])
    assert first.runs[-1].holdout_bpb == pytest.approx(1.59)
    assert not question.is_idea
    assert facts.findings.honest == EFFECT
    assert [(edit.number, edit.runs) for edit in facts.findings.edits] == [(1, 2), (4, 0)]


def test_the_staircase_follows_the_decisions_and_rises_where_one_is_revoked(facts):
    steps = progress(facts)
    assert [(number, best.number) for number, best in steps] == [
        (0, 0), (1, 1), (2, 2), (3, 1), (4, 4), (5, 4), (6, 4), (7, 4)
    ]  # fmt: skip
    (_, lucky), (_, after) = steps[2:4]
    assert after.val_bpb > lucky.val_bpb
    assert after.high_bpb - after.val_bpb < lucky.high_bpb - lucky.val_bpb  # which has one seed


def test_a_night_is_summed_up(facts):
    now = summary_of(facts)
    assert (now.kept, now.discarded, now.crashed, now.ideas) == (2, 2, 1, 6)  # one goes on
    assert now.best.number == 4
    assert now.gain.mean_bpb == pytest.approx(1.5 - 1.3)
    assert (now.usd, now.dawn) == (0.75, facts.findings)
    sources = {one.source: (one.attempts, one.kept, one.calls, one.failures) for one in now.sources}
    assert sources == {"search": (5, 2, 0, 0), "llm": (1, 0, 2, 1)}
    assert now.hours["asking"] == pytest.approx(12 / 3600)
    assert now.hours["other"] == pytest.approx((20 + 6) / 3600)  # a run that is repeated, and a dry run
    runs = [run for one in facts.attempts for run in one.runs]
    spent_s = sum(run.spent_s for run in runs)
    assert now.hours["training"] + now.hours["scoring"] + 20 / 3600 == pytest.approx(spent_s / 3600)


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
    hours = [summary_of(record).hours["training"] for record in (told, facts)]
    assert hours[0] == pytest.approx(hours[1])


def test_every_night_that_came_with_the_project_has_facts():
    project = Place.of(PROJECT / "train_mlx.py")
    tags = [folder.name for folder in project.shipped.glob("*/")]
    assert tags
    assert set(tags) <= set(known_tags(project))
    for tag in known_tags(project):
        told = read_night(project, tag)
        steps = progress(told)
        assert steps[-1][1].number == told.incumbent
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


def test_a_record_of_another_night_or_with_findings_that_no_dawn_makes_is_damaged(place, tmp_path):
    shutil.copytree(place.repo.root, tmp_path / "there")
    there = Place.of(tmp_path / "there" / "train_mlx.py")
    ship(there, "t", there.shipped / "t")
    shutil.copytree(there.shipped / "t", there.shipped / "other")
    with pytest.raises(NightError, match=r"other is damaged \(it is the record of another night, 't'"):
        read_night(there, "other")
    shutil.rmtree(there.nights)
    path = there.shipped / "t" / "findings.json"
    recorded = json.loads(path.read_text())
    markup = '<meta http-equiv="refresh" content="0; url=https://example.org">'
    width = {"mean_bpb": 0.1, "low_bpb": None, "high_bpb": markup}
    for changed in ({"champion": markup}, {"script": -1}, {"champion": 99}, {"honest": width}, {"passengers": ["x"]}):
        path.write_text(json.dumps(recorded | {"findings": recorded["findings"] | changed}))
        with pytest.raises(NightError, match="t is damaged"):
            read_night(there, "t")
