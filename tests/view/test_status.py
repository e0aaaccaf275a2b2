"""nightshift status: for people and for programs the same facts, and a start without what it does not need."""

import dataclasses
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from eventful import SCRIPT, fill
from nights import Grounds, environment, make_repository

from agent.cli.status import next_commands
from agent.judging.noise import noise
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.records.record import of_journal
from agent.records.summary import summary_of
from agent.view.answer import plain


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place.of(make_repository(tmp_path_factory.mktemp("status") / "repository", SCRIPT) / "train_mlx.py")
    fill(place)
    with Journal.resume(place.journal("t")) as journal:
        journal.record_facts(noise=noise(journal.attempts()))  # as a night does
    return place


def status_of(place: Place, *words: str) -> str:
    done = Grounds(place.repo.root).nightshift("status", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_says_what_its_json_has_and_that_is_what_all_facts_say(place):
    facts, shown = json.loads(status_of(place, "--json")), status_of(place)
    assert facts["summary"] == plain(summary_of(read_night(place, "t")))
    assert (facts["running"], facts["left"], facts["tag"]) == (None, None, "t")
    now, best, dawn = facts["summary"], facts["summary"]["best"], facts["summary"]["dawn"]
    for words in (
        "night t: not running; it began 2026-01-02 03:04:05 UTC, its last run ended ",
        f"6 of them ideas: {now['kept']} kept, {now['discarded']} discarded, {now['crashed']} crashed, 1 unfinished",
        f"best val_bpb {best['val_bpb']:.6f} (#{best['number']}), the baseline has {now['baseline']['val_bpb']:.6f}",
        f"Measured again on fresh seeds, #{dawn['champion']} gains {dawn['honest']['mean_bpb']:+.6f} [",
        f"σ {now['noise']['sigma_bpb']:.6f} from {now['noise']['runs']} repeated runs; a difference of two single runs "
        f"below {now['noise']['smallest_bpb']:.6f} may be luck",
        f"{3600 * now['hours']['asking']:.0f} s asking, ",
        f"${now['usd']:.2f}",
        "unfinished, goes on when the night does: #{} {}".format(*now["unfinished"][0]),
        *(f"{share['source']:<8}" for share in now["sources"]),
        "nightshift take t:confirmed  the confirmed script, into your working tree",
    ):
        assert words in shown, words


def test_a_night_that_runs_says_what_is_left_of_its_limits(place):
    with only_night(Path(place.repo.root, ".git")) as tell:
        tell("t", place.folder("t"), hours=2.0, experiments=9)
        facts, shown = json.loads(status_of(place, "--json")), status_of(place)
        tell("t", place.folder("t"))
        endless = json.loads(status_of(place, "--json"))
    assert facts["running"]["stopping"] is False
    assert datetime.fromisoformat(facts["running"]["since"]).tzinfo is not None  # as every time of an answer
    assert 7000 < facts["left"]["seconds"] <= 7200
    assert facts["left"]["experiments"] == 9 - facts["summary"]["ideas"] == 3
    assert "3 experiments" in shown
    assert "next:" not in shown  # it goes on by itself
    assert endless["left"] == {"seconds": None, "experiments": None}


def test_status_names_the_commands_that_come_next(place):
    with Journal.read(place.journal("t")) as journal:
        now = summary_of(of_journal(journal))
    assert now.dawn is not None
    look, now = now, dataclasses.replace(now, night=dataclasses.replace(now.night, budget_s=300.0))
    for known, second in (
        (now, "take t:confirmed"),
        (dataclasses.replace(now, dawn=None), "confirm t"),
        (dataclasses.replace(now, dawn=dataclasses.replace(now.dawn, script=None)), "results t"),
        (dataclasses.replace(look, dawn=None), "results t"),
    ):
        commands = [*next_commands(known)]
        assert commands[:2] == ["nightshift show t:best", f"nightshift {second}"]
        assert commands[-1] == "nightshift run --tag t"


def test_status_for_programs_starts_without_numpy_rich_and_the_other_commands(place):
    command = [sys.executable, "-P", "-X", "importtime", "-m", "agent", "status", "--json"]
    done = subprocess.run(
        command, cwd=place.repo.root, env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout)["tag"] == "t"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "agent.records.summary" in imported
    slow = {"git", "numpy", "scipy", "rich", "psutil", "agent.cli.run", "agent.night.loop", "agent.view.terminal"}
    assert imported & slow == set()
