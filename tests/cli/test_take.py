"""`nightshift take` puts a script into the working tree, and loses nothing that is there."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from commands import nothing_yet, refused
from nights import PROJECT, Grounds, make_repository, unigram
from samples import NIGHT
from serving import GrowingNight

from agent.experiment import Status, packed
from agent.records.journal import Journal
from agent.records.place import Place

MINE = unigram(SHARPNESS=0.33)
BASELINE, WORSE, BEST = (unigram(SHARPNESS=1.0 + number) for number in range(3))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    """A night of three attempts with real commits: the baseline, a loss and a gain, the tip of the night's branch."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("take") / "user", unigram()))
    place = Place.of(script(grounds))
    with Journal.create(place.journal("t"), NIGHT) as journal:
        growing = GrowingNight(place, "t", journal)
        growing.add("baseline", 1.5, Status.KEEP)
        growing.add("worse", 1.6)
        growing.add("better", 1.4, Status.KEEP)
    grounds.git("update-ref", NIGHT.branch, "refs/experiments/t/0002")
    return grounds


@pytest.fixture
def here(night: Grounds, tmp_path: Path) -> Grounds:
    """A copy of it for one test, with the script as it is committed."""
    shutil.copytree(night.root, tmp_path / "user", symlinks=True)
    grounds = Grounds(tmp_path / "user")
    script(grounds).write_text(unigram())
    return grounds


def script(grounds: Grounds) -> Path:
    return grounds.root / "train_mlx.py"


def taken(grounds: Grounds, *words: str) -> dict[str, object]:
    done = grounds.nightshift("take", *words, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert isinstance(facts, dict)
    return facts


def test_the_best_is_taken_and_neither_index_nor_head_are_touched(here):
    script(here).chmod(0o750)
    head, index = here.git("rev-parse", "HEAD"), here.git("ls-files", "-s")
    done = here.nightshift("take")
    assert done.stdout == "train_mlx.py is now attempt 2 of night t: better\n"
    assert script(here).read_text() == BEST
    assert script(here).stat().st_mode & 0o777 == 0o750
    assert (here.git("rev-parse", "HEAD"), here.git("ls-files", "-s")) == (head, index)
    assert here.nightshift("take", "best").stdout == "train_mlx.py was already attempt 2 of night t: better\n"
    assert not list(here.root.glob("*.before-take*"))


@pytest.mark.parametrize("before", [unigram(), BASELINE, WORSE, None, MINE])
def test_only_what_neither_head_nor_an_attempt_keeps_is_kept_aside(here, before):
    script(here).unlink()
    if before is not None:
        script(here).write_text(before)
    facts = taken(here)
    assert (facts["tag"], facts["attempt"], facts["was_there"]) == ("t", 2, False)
    assert facts["ref"] == "refs/experiments/t/0002"
    assert facts["commit"] == here.git("rev-parse", "refs/experiments/t/0002")
    assert (facts["before_take"] is not None) == (before == MINE)
    assert script(here).read_text() == BEST
    script(here).write_text(MINE + "\n")  # a copy that was put aside is never replaced
    taken(here, "1")
    aside = [path.read_text() for path in sorted(here.root.glob("*.before-take*"))]
    assert aside == ([MINE, MINE + "\n"] if before == MINE else [MINE + "\n"])


@pytest.mark.parametrize("saved", [lambda text: text.replace("\n", "\r\n"), lambda text: f"\ufeff{text}"])
def test_the_file_keeps_its_line_ends_and_its_mark(here, saved):
    script(here).write_bytes(saved(unigram()).encode())
    assert taken(here)["before_take"] is None  # only these edits differ from HEAD
    assert script(here).read_bytes() == saved(BEST).encode()
    assert taken(here)["was_there"]


def test_a_link_is_never_written_through(here, tmp_path):
    outside = tmp_path / "outside.py"
    outside.write_text(unigram())
    script(here).unlink()
    script(here).symlink_to(outside)
    assert f"leads to {outside}, and take writes plain files in" in refused(here.nightshift("take"))
    assert outside.read_text() == unigram()
    script(here).unlink()
    script(here).mkdir()
    assert "is a folder, or lies in none; make it a file" in refused(here.nightshift("take"))


def name_script(grounds: Grounds, path: str) -> None:
    """Let the night's journal say that its script is there."""
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as journal:
        journal.execute("UPDATE night SET value = ? WHERE fact = 'script'", (path,))
        journal.commit()


@pytest.mark.parametrize("named", ["prepare.py", ".git/hooks/post-index-change"])
def test_a_night_that_names_a_file_which_is_no_training_script_is_not_taken_from(here, named):
    before = {path: path.read_bytes() for path in (*here.root.rglob("*.py"), *here.root.rglob(".git/hooks/*"))}
    name_script(here, named)
    wrong = "lies in git's own folder" if ".git" in named else f"has its script in {named}, where no training script is"
    assert wrong in refused(here.nightshift("take", "2"))
    assert {path: path.read_bytes() for path in (*here.root.rglob("*.py"), *here.root.rglob(".git/hooks/*"))} == before


def test_a_script_that_is_no_text_of_a_file_is_shown_and_not_taken(here):
    with closing(sqlite3.connect(here.folder("t") / "journal.sqlite")) as journal:
        journal.execute("UPDATE scripts SET packed = ?", (packed("# half \ud800 of a pair\n"),))
        journal.commit()
    assert "has no script that a file can hold" in refused(here.nightshift("take", "1"))
    assert script(here).read_text() == unigram()
    assert here.nightshift("show", "1", "--script").stdout == "# half \\ud800 of a pair\n"


def test_a_script_of_another_name_is_taken_into_its_own_place_from_a_folder_below(here):
    below = Grounds(here.root / "notes")
    below.root.mkdir()
    assert taken(below)["script"] == str(script(here))
    (here.root / "mine.py").write_text(unigram())
    name_script(here, "mine.py")
    assert taken(here, "2")["script"] == str(here.root / "mine.py")
    assert (here.root / "mine.py").read_text() == BEST


def test_where_only_records_of_other_nights_are_the_first_edit_begins_with_the_script_as_it_stands(tmp_path):
    fresh = Grounds(make_repository(tmp_path / "fresh", unigram()))
    shutil.copyfile(PROJECT / "results.tsv", fresh.root / "results.tsv")
    said = nothing_yet(fresh.nightshift("take", "best"))
    assert said.startswith("no night has run here yet: edit train_mlx.py as it stands")
