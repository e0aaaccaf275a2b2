"""nightshift report: the page of the latest night, or of a named one."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from commands import refused
from nights import Grounds
from samples import HOSTILE, record_nights
from serving import growing_night, make_place

from agent.experiment import Status
from agent.night.lock import tell_end


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Grounds:
    """Two nights, of three attempts and of two."""
    place = record_nights(tmp_path_factory.mktemp("report") / "user", t=("SHARPNESS 0.1", HOSTILE[0]), u=("one",))
    return Grounds(place.repo.root)


def test_the_page_and_the_picture_are_written_where_they_are_wanted(nights, tmp_path):
    page, picture = tmp_path / "new" / "t.html", tmp_path / "P.PNG"
    done = nights.nightshift("report", "t", "--out", str(page), "--png", str(picture))
    assert done.stdout.splitlines() == [f"wrote {page}: t, 3 attempts", f"wrote {picture}"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "new" / "t.html").read_text()
    assert "2 ideas tried, 1 kept: val_bpb went down from 1.5000 to 1.4100." in text
    assert "+SHARPNESS = 0.1" in text
    assert HOSTILE[0] not in text


def test_looking_at_a_night_writes_through_no_link_that_a_clone_brought(nights, tmp_path):
    users = tmp_path / "profile"
    users.write_text("alias ll='ls -l'\n")
    page = nights.folder("u") / "report.html"
    page.unlink(missing_ok=True)
    page.symlink_to(users)
    assert nights.nightshift("status").returncode == 0
    before = sorted(path.name for path in nights.folder("u").iterdir())
    assert nights.nightshift("report").returncode == 0
    assert users.read_text() == "alias ll='ls -l'\n"
    assert (page.is_symlink(), page.is_file()) == (False, True)
    assert sorted(path.name for path in nights.folder("u").iterdir()) == before  # reading writes nothing else
    assert nights.nightshift("report", "--out", str(page)).returncode == 0


def test_the_tag_in_a_journal_of_a_clone_leads_no_page_out_of_its_folder(nights):
    shutil.copytree(nights.folder("u"), nights.folder("w"))
    with closing(sqlite3.connect(nights.folder("w") / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE night SET value = '../../..' WHERE fact = 'tag'")
    reads = ("report w", "results w", "export record w", "show w:0", "status w")
    for words in (*reads, "run --tag w", "confirm w", "pack w"):
        assert "is of another night, '../../..'; move its folder" in refused(nights.nightshift(*words.split()))
    assert not (nights.root.parent / "report.html").exists()
    shutil.rmtree(nights.folder("w"))


@pytest.mark.parametrize(
    ("words", "name"),
    [("report t", "report.html"), ("pack t", "nightshift-t.tar.gz")],
)
def test_a_folder_that_is_there_gets_the_file_under_its_usual_name(nights, tmp_path, words, name):
    done = nights.nightshift(*words.split(), "--out", str(tmp_path))
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, [name]), done.stderr
    again = nights.nightshift(*words.split(), "--out", str(tmp_path))
    assert again.returncode == (2 if words == "pack t" else 0)  # a packed file is never overwritten


def test_the_page_of_a_night_loads_its_newer_self_as_long_as_the_night_runs(tmp_path):
    place = make_place(tmp_path / "user")
    grounds, page, copy = Grounds(place.repo.root), place.folder("t") / "report.html", tmp_path / "copy.html"
    with growing_night(place, "t") as night:
        night.add("baseline", 1.5, Status.KEEP)
        night.train(night.begin("the next"), log=b"step 1\n")
        for out in ((), ("--out", str(page)), ("--out", str(copy))):
            page.unlink(missing_ok=True)
            assert grounds.nightshift("report", *out).returncode == 0
        assert "data-again-s" not in copy.read_text()  # which nothing writes again
        grounds.nightshift("report")
        assert 'data-again-s="30.0"' in page.read_text()
        assert all(
            words in page.read_text() for words in ("Attempt 1: training, seed 0", "59 experiments left", "step 1")
        )
        tell_end(place.repo.common_dir)  # as a night does that has ended, before it draws its last page
        grounds.nightshift("report")
        assert not any(words in page.read_text() for words in ("data-again-s", "Attempt 1: training"))


def test_a_file_that_cannot_be_written_is_named_as_its_user_named_it(nights):
    assert refused(nights.nightshift("report", "--out", "/proc/x.html")).startswith("cannot use /proc/x.html: ")


def test_misuse_is_explained(nights, tmp_path):
    (tmp_path / "mine.html").write_text("<!doctype html>\n<p>mine</p>\n")
    for mine in (tmp_path / "mine.html", nights.root / "train_mlx.py"):
        before = mine.read_text()
        assert "holds something other than a night's page" in refused(nights.nightshift("report", "--out", str(mine)))
        assert mine.read_text() == before
    assert refused(nights.nightshift("report", "--out", "/dev/null/x.html")).startswith("cannot use /dev/null")
    assert "--png must end in .png, and p.gif does not" in refused(nights.nightshift("report", "--png", "p.gif"))
