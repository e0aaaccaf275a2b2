"""What is taken out of a night: tables for other programs, and comparisons; and nights that run nothing here."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import refused
from nights import Grounds, git


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, trained_night: Path) -> Iterator[Grounds]:
    """A night of four attempts for all tests here: the baseline, two gains, a crash."""
    root = tmp_path_factory.mktemp("taking")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield Grounds(Path(shutil.copytree(trained_night, root / "user")))


@pytest.mark.parametrize(
    ("words", "tag"),
    [(("sample", "def"), "t"), (("run", "--tag", "t"), "t"), (("confirm",), "t"), (("run", "--tag", "u"), "u")],
)
def test_a_night_that_git_tracks_runs_nothing_here(grounds, words, tag):
    index = Path(grounds.git("rev-parse", "--absolute-git-dir").strip()) / "index"
    before, blob = index.read_bytes(), grounds.git("hash-object", "-w", "train_mlx.py").strip()
    grounds.git("update-index", "--add", "--cacheinfo", f"100644,{blob},experiments/nights/{tag}/notes.jsonl")
    try:
        said = refused(grounds.nightshift(*words))
    finally:
        index.write_bytes(before)
    assert f"git tracks experiments/nights/{tag}" in said
    assert not grounds.folder("u").exists()


def test_an_edit_whose_commits_are_elsewhere_says_where_to_fetch_them(grounds, tmp_path):
    git(tmp_path, "clone", "-q", "--no-local", "--single-branch", str(grounds.root), "clone")
    shutil.copytree(grounds.folder("t"), tmp_path / "clone" / "experiments" / "nights" / "t")
    without = refused(Grounds(tmp_path / "clone").nightshift("show", "1", "--diff"))
    assert "the edit of attempt 1 cannot be shown: commit " in without
    refs = "refs/experiments/t/*:refs/experiments/t/*"
    assert f"is not in this repository; fetch it from where the night ran: git fetch REMOTE '{refs}'" in without


# ---- export ----------------------------------------------------------------------------------------------------------


def test_tables_have_a_row_for_each_attempt_with_its_dials_and_replace_earlier_ones(grounds, tmp_path):
    for _ in range(2):
        done = grounds.nightshift("export", "csv", "--out", str(tmp_path / "out.csv"))
        assert done.stdout == f"wrote {tmp_path / 'out.csv'}: 4 attempts of night t\n", done.stderr
    rows = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    assert [row["status"] for row in rows] == ["keep", "keep", "keep", "crash"]
    assert [row["dial.SHARPNESS"] for row in rows] == ["0.5", "0.7", "0.9", "0.5"]
    assert [float(row["val_bpb"] or 0) for row in rows] == [attempt.val_bpb or 0 for attempt in grounds.attempts("t")]
    assert [json.loads(row["runs"])[0]["ending"] for row in rows][2:] == ["finished", "crashed"]
    assert grounds.nightshift("export", "jsonl", "t", "--out", str(tmp_path)).returncode == 0  # writes into a folder
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["dial.SHARPNESS"] for line in lines] == [0.5, 0.7, 0.9, 0.5]
    assert [line["val_bpb"] for line in lines] == [attempt.val_bpb for attempt in grounds.attempts("t")]


def test_an_export_replaces_nothing_but_an_export(grounds, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_text("name,age\nme,7\n")
    for kind in ("csv", "jsonl"):
        said = refused(grounds.nightshift("export", kind, "--out", str(mine)))
        assert "holds something other than an export" in said
    assert mine.read_text() == "name,age\nme,7\n"
