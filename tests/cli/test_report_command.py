"""nightshift report: the page of the latest night, or of a named one."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from commands import refused
from nights import Grounds
from samples import HOSTILE, record_nights


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
    assert sorted(path.name for path in nights.folder("u").iterdir()) == before  # to look writes nothing else
    assert nights.nightshift("report", "--out", str(page)).returncode == 0


def test_the_tag_in_a_journal_of_a_clone_leads_no_page_out_of_its_folder(nights):
    shutil.copytree(nights.folder("u"), nights.folder("w"))
    with closing(sqlite3.connect(nights.folder("w") / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE night SET value = '../../..' WHERE fact = 'tag'")
    looks = ("report w", "results w", "export jsonl w", "show w:0", "status w")
    for words in (*looks, "run --tag w", "confirm w", "pack w"):
        assert "is of another night, '../../..'; move its folder" in refused(nights.nightshift(*words.split()))
    assert not (nights.root.parent / "report.html").exists()
    shutil.rmtree(nights.folder("w"))


def test_misuse_is_explained(nights, tmp_path):
    assert "is a folder; name a file with --out" in refused(nights.nightshift("report", "--out", str(tmp_path)))
    assert "--png must end in .png, and p.gif does not" in refused(nights.nightshift("report", "--png", "p.gif"))
