"""All nights that are known here: with a journal, packed away, shipped, or only in results.tsv."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import refused
from json_page import faults
from nights import PROJECT, Grounds
from samples import NIGHT, record_nights
from serving import GrowingNight

from agent.experiment import Status
from agent.night.lock import only_night
from agent.records.journal import Journal
from agent.records.place import Place


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory, trained_night: Path) -> Grounds:
    """One night of each state: the real one is packed away, `open` was begun last."""
    nights = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("nights") / "user")))
    assert nights.nightshift("pack", "t", "--remove").returncode == 0
    place = Place.of(nights.root / "train_mlx.py")
    night = replace(NIGHT, tag="open", base=nights.git("rev-parse", "HEAD"), started="2099-01-01T00:00:00Z")
    with Journal.create(place.journal("open"), night) as journal:
        growing = GrowingNight(place, "open", journal)
        growing.add("baseline", 1.5, Status.KEEP)
        growing.add("better", 1.4, Status.KEEP)
        growing.add("worse", 1.6)
    shipped = "nov22-cpu-mix-0"
    shutil.copytree(PROJECT / "experiments/shipped" / shipped, nights.root / "experiments/shipped" / shipped)
    broken = nights.folder("broken") / "journal.sqlite"
    broken.parent.mkdir()
    broken.write_text("no journal")
    return nights


def test_every_night_is_listed_with_its_state_the_oldest_first_and_its_honest_gain(grounds):
    answer = json.loads(grounds.nightshift("nights", "--json").stdout)
    assert faults("nights", answer) == []
    nights = {night["tag"]: night for night in answer["nights"]}
    assert {tag: night["state"] for tag, night in nights.items()} == {
        "broken": "damaged", "nov22-cpu-mix-0": "shipped", "t": "archived", "open": "can go on",
    }  # fmt: skip
    assert [night["started"] for night in nights.values()] == sorted(night["started"] for night in nights.values())
    packed, opened = nights["t"], nights["open"]
    assert (packed["attempts"], packed["kept"], packed["best_attempt"]) == (4, 2, 2)
    assert (opened["attempts"], opened["kept"], opened["best_attempt"], opened["val_bpb"]) == (3, 1, 1, 1.4)
    shown = grounds.nightshift("nights").stdout
    assert "unpack one: nightshift unpack t" in shown
    assert "0.2194 [0.1506, 0.2883]" in shown


def test_a_night_without_a_journal_names_the_command_that_shows_it(grounds):
    tag = "nov22-cpu-mix-0"
    for words in (("note", "deeper", "--tag", tag), ("prompt", tag), ("pack", tag), ("confirm", tag)):
        said = refused(grounds.nightshift(*words))
        assert said == f"night {tag} has no journal here, only its record; see it with: nightshift report {tag}"
    assert grounds.nightshift("status", tag).stdout.startswith(f"night {tag}: not running; ")
    assert "unpack it first, with: nightshift unpack t" in refused(grounds.nightshift("show", "t:0"))
    assert "\nrun with seed 0: finished" in grounds.nightshift("show", f"{tag}:0").stdout


def test_the_night_that_runs_is_meant_though_another_looks_later_by_a_clock_that_was_wrong(tmp_path):
    place = record_nights(tmp_path / "user", runs=("an edit",), later=("an edit",))
    grounds = Grounds(place.repo.root)
    asked = "status", "--json"
    assert json.loads(grounds.nightshift(*asked).stdout)["summary"]["night"]["tag"] == "later"
    with only_night(place.repo.common_dir) as tell:
        tell("runs", place.folder("runs"))
        assert json.loads(grounds.nightshift(*asked).stdout)["summary"]["night"]["tag"] == "runs"
