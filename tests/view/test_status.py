"""nightshift status: for people and for programs the same facts, and a start without what it does not need."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from json_page import faults
from nights import Grounds, environment, make_repository
from samples import SCRIPT, attempt, record_night

from agent.cli.status import next_commands
from agent.experiment import Kind
from agent.night.limits import Limits
from agent.night.lock import only_night
from agent.records.place import Place, read_night
from agent.records.summary import summary_of
from agent.view.answer import in_order, plain


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place.of(make_repository(tmp_path_factory.mktemp("status") / "repository", SCRIPT) / "train_mlx.py")
    record_night(place)
    return place


def facts_of(place: Place) -> dict:
    facts = json.loads(Grounds(place.repo.root).nightshift("status", "--json").stdout)
    assert faults("status", facts) == []
    return facts


def test_a_night_that_runs_says_what_is_left_of_its_limits(place):
    facts = facts_of(place)
    assert facts["summary"] == plain(summary_of(read_night(place, "t")))
    assert (facts["running"], facts["left"], facts["tag"]) == (None, None, "t")
    with only_night(Path(place.repo.root, ".git")) as tell:
        tell("t", place.folder("t"), Limits(9, 2.0))
        facts = facts_of(place)
        tell("t", place.folder("t"))
        endless = facts_of(place)
    assert facts["running"]["stopping"] is False
    assert datetime.fromisoformat(facts["running"]["since"]).tzinfo is not None  # every time in an answer has a zone
    assert 7000 < facts["left"]["seconds"] <= 7200
    assert facts["left"]["experiments"] == 9 - facts["summary"]["ideas"] == 3
    assert endless["left"] == {"seconds": None, "experiments": None}


def test_after_each_state_of_a_night_the_commands_come_next_that_a_user_wants_then(place):
    record = read_night(place, "t")
    first_look = summary_of(record)
    now, crash = replace(first_look, night=replace(first_look.night, budget_s=300.0)), "show t:3 --log"
    no_keep = replace(now, gain=None, confirmation=None)
    for known, commands in (
        (now, ("take t:confirmed", "show t:best", crash)),
        (replace(now, confirmation=None), ("confirm t", "take t:4", "show t:best", crash)),
        (
            replace(now, confirmation=replace(now.confirmation, script=None)),
            ("confirm t", "take t:0", "show t:best", crash),
        ),
        (replace(now, confirmation=replace(now.confirmation, best=1)), ("confirm t", "take t:4", "show t:best", crash)),
        (replace(first_look, confirmation=None), ("confirm t", "take t:4", "show t:best", crash, "run")),
        (no_keep, ("results t", crash)),
        (replace(no_keep, ideas=0, best=None), (crash,)),
    ):
        words = [*commands, "run --tag t"]
        assert [*next_commands(record, known)] == [f"nightshift {command}" for command in words]
    broken = replace(record, attempts=(attempt(0, Kind.CRASHED),))
    assert [*next_commands(broken, summary_of(broken))] == ["nightshift show t:0 --log", "nightshift run"]
    nothing = replace(record, attempts=())
    assert [*next_commands(nothing, summary_of(nothing))] == ["nightshift run --tag t"]


def test_status_for_programs_starts_without_numpy_rich_and_the_other_commands(place):
    command = [sys.executable, "-P", "-X", "importtime", "-m", "agent", "status", "--json"]
    done = subprocess.run(
        command, cwd=place.repo.root, env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "agent.records.summary" in imported
    slow = {"git", "numpy", "scipy", "rich", "psutil", "agent.cli.run", "agent.night.loop", "agent.view.terminal"}
    assert imported & slow == set()


def test_a_workers_name_may_have_more_digits_than_python_reads():
    endless = f"gpu {'9' * 5000}"
    assert sorted([endless, "gpu 10", "gpu", "gpu 2"], key=in_order) == ["gpu", "gpu 2", "gpu 10", endless]
