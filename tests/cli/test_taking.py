"""What is taken out of a night: the edits of attempts, and nights that run nothing here."""

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
