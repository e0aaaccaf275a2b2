"""A night of which a clone has the record alone: what it holds can be looked at and used, the rest is said."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from commands import nothing_yet, refused
from json_page import faults
from nights import PROJECT, Grounds, git, make_repository, unigram
from samples import FOUND, NIGHT
from serving import GrowingNight

from agent.cli.main import COMMANDS
from agent.experiment import Status
from agent.findings import Confirmation
from agent.records.journal import Journal
from agent.records.place import Place, read_night
from agent.view.page import gather, page

FIRST_SCRIPT = "3aa6ffe0"  # git's name of night five's first script
BASELINE, BEST = unigram(SHARPNESS=1.0), unigram(SHARPNESS=3.0)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    """A clone with the records of t, which is confirmed, and of u, which has no confirmation; v is in results.tsv."""
    folder = tmp_path_factory.mktemp("shipped")
    owner = Grounds(make_repository(folder / "user", BASELINE))
    place = Place.of(owner.root / "train_mlx.py")
    for tag in ("t", "u"):
        with Journal.create(place.journal(tag), replace(NIGHT, tag=tag)) as journal:
            growing = GrowingNight(place, tag, journal)
            growing.add("baseline", 1.5, Status.KEEP)
            growing.add("worse", 1.6)
            growing.add("better", 1.4, Status.KEEP)
            if tag == "t":
                found = replace(FOUND, best=2, script=2, edits=(), dropping=None)
                journal.put_confirmation(Confirmation(1, 2, 4, NIGHT.started, NIGHT.started, found))
        assert owner.nightshift("export", "record", tag).returncode == 0
        assert owner.nightshift("results", tag).returncode == 0
    results = owner.root / "results.tsv"
    results.write_text(results.read_text() + results.read_text().splitlines()[1].replace("\tt\t", "\tv\t") + "\n")
    owner.git("add", "-f", "experiments/shipped", "results.tsv")
    owner.git("commit", "-q", "-m", "records")
    git(folder, "clone", "-q", "--no-local", "--single-branch", str(owner.root), "clone")
    return Grounds(folder / "clone")


@pytest.fixture
def here(clone: Grounds, tmp_path: Path) -> Grounds:
    shutil.copytree(clone.root, tmp_path / "clone")
    return Grounds(tmp_path / "clone")


def script(grounds: Grounds) -> str:
    return (grounds.root / "train_mlx.py").read_text()


@pytest.mark.parametrize("which", ["t:confirmed", "t:best", "t:2", "t"])
def test_the_best_script_is_taken_from_the_record_and_given_back(here, which):
    assert here.nightshift("take", which).stdout == "train_mlx.py is now attempt 2 of night t: better\n"
    assert script(here) == BEST
    assert here.nightshift("take", "t:0").returncode == 0
    assert script(here) == BASELINE
    assert not list(here.root.glob("*.before-take*"))


def test_its_edit_and_both_scripts_are_shown_and_the_edit_is_a_patch(here, tmp_path):
    assert here.nightshift("show", "t:best", "--script").stdout == BEST
    assert here.nightshift("show", "t:0", "--script").stdout == BASELINE
    shown = here.nightshift("show", "t:2", "--diff").stdout
    assert shown.startswith("attempt 2 against attempt 0, as the record of night t has it:\n")
    (tmp_path / "edit.patch").write_text(shown)
    here.git("apply", str(tmp_path / "edit.patch"))
    assert script(here) == BEST
    answer = json.loads(here.nightshift("show", "t:2", "--diff", "--json").stdout)
    assert faults("show --diff", answer) == []
    assert (answer["parent"], answer["dials"]) == (0, {"SHARPNESS": [1.0, 3.0]})
    assert "+SHARPNESS = 3.0" in here.nightshift("show", "t:0", "u:2", "--diff").stdout


def test_what_its_confirmation_has_found_and_where_it_stands_are_read_from_the_record(here):
    found = here.nightshift("confirm", "t", "--show")
    assert "the confirmed script, #2, is on branch experiments/30s-t-confirmed where it ran" in found.stdout
    status = here.nightshift("status", "t").stdout
    assert "nightshift take t:confirmed" in status
    assert "\nscript train_mlx.py\n" in status  # the record does not name the data
    assert nothing_yet(here.nightshift("confirm", "u", "--show")).startswith("night u has not been confirmed yet")
    assert nothing_yet(here.nightshift("take", "u:confirmed")) == "the best script of night u is not confirmed yet"


def test_a_script_that_the_record_lacks_is_answered_with_what_it_has(here):
    for words in (("take", "t:1"), ("show", "t:1", "--diff"), ("show", "t:1", "t:2", "--diff")):
        said = refused(here.nightshift(*words))
        assert said.startswith("the script of attempt 1 of night t stayed where the night ran, in commit ")
        assert said.endswith("has the edit of attempt 2 alone; see it with: nightshift show t:2 --diff")
    assert "its record here has none" in refused(here.nightshift("sample", "x", "t:2"))


def test_without_the_text_that_the_edit_is_about_the_edit_is_still_shown(here, tmp_path):
    there = Grounds(make_repository(tmp_path / "other", unigram(SHARPNESS=0.1)))
    shutil.copytree(here.root / "experiments" / "shipped", there.root / "experiments" / "shipped")
    assert "+SHARPNESS = 3.0" in there.nightshift("show", "t:2", "--diff").stdout
    assert "the script that night t began with is not in this repository" in refused(there.nightshift("take", "t"))


def test_attempt_0_is_no_edit_and_the_command_that_is_named_works(here, tmp_path):
    there = Grounds(make_repository(tmp_path / "other", unigram(SHARPNESS=0.1)))
    shutil.copytree(here.root / "experiments" / "shipped", there.root / "experiments" / "shipped")
    for grounds, last in ((here, "--script"), (there, "t:0")):
        *_, command = refused(grounds.nightshift("show", "t:0", "--diff")).partition("with: nightshift ")
        assert command.endswith(last)
        assert grounds.nightshift(*command.split()).returncode == 0


def test_an_edit_that_does_not_lead_to_the_named_text_is_not_taken(here):
    edit = here.root / "experiments" / "shipped" / "t" / "best.diff"
    edit.write_text(edit.read_text().replace("+SHARPNESS = 3.0", "+SHARPNESS = 4.0"))
    refused(here.nightshift("take", "t"))
    assert script(here) == BASELINE


@pytest.mark.parametrize("tag", ["t", "u"])
def test_neither_its_page_nor_its_status_offers_a_command_that_fails(here, tag):
    place = Place.of(here.root / "train_mlx.py")
    record = read_night(place, tag)
    texts = page(record, gather(place, record)), here.nightshift("status", tag).stdout
    offered = {line.split("  ")[0] for text in texts for line in re.findall(r"nightshift ([a-z]+ [^<\n;]+)", text)}
    for words in (commands := [words for words in offered if words.split()[0] in COMMANDS]):
        assert here.nightshift(*words.split()).returncode == 0, words
    assert commands


@pytest.mark.parametrize(
    "words", ["show v", "show v:1 --diff", "take v:best", "report v", "status v", "confirm v", "confirm v --show"]
)
def test_a_night_of_which_only_rows_are_left_names_the_command_that_shows_them(here, words):
    said = refused(here.nightshift(*words.split()))
    assert said == "of night v only its rows in results.tsv are here; see them with: nightshift results v"
    assert here.nightshift("results", "v").returncode == 0


def test_every_command_of_the_example_report_succeeds_in_a_clone(tmp_path):
    whole = subprocess.run(["git", "cat-file", "-e", FIRST_SCRIPT], cwd=PROJECT, capture_output=True, check=False)
    if whole.returncode:
        pytest.skip("the script that the night began with is not here, as in a shallow clone")
    git(tmp_path, "clone", "-q", "--shared", str(PROJECT), "clone")
    clone, text = Grounds(tmp_path / "clone"), (PROJECT / "docs" / "example-report.html").read_text()
    assert clone.nightshift("report", "five", "--out", "drawn.html").returncode == 0  # names commands, not edits
    text += (clone.root / "drawn.html").read_text()
    commands = set(re.findall(r">nightshift ([^<]+)<", text))
    assert commands
    for words in commands:
        done = clone.nightshift(*words.split())
        assert done.returncode == 0, done.stderr
