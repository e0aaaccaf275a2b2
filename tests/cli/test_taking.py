"""What is taken out of a night: tables for other programs, and comparisons; and nights that run nothing here."""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import refused
from nights import BROKEN, Grounds, environment, git, make_repository, unigram


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
    for kind in ("jsonl", "parquet"):
        assert grounds.nightshift("export", kind, "t", "--out", str(tmp_path)).returncode == 0  # writes into a folder
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(line["val_bpb"], line["dial.SHARPNESS"]) for line in lines] == [
        (line["val_bpb"], line["dial.SHARPNESS"]) for line in pq.read_table(tmp_path / "t.parquet").to_pylist()
    ]


def test_an_export_replaces_nothing_but_an_export(grounds, tmp_path):
    (tmp_path / "mine.csv").write_text("name,age\nme,7\n")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1, not really")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for kind, out in (("csv", tmp_path / "mine.csv"), ("parquet", tmp_path / "mine.parquet"), ("trackio", tmp_path)):
        said = refused(grounds.nightshift("export", kind, "--out", str(out)))
        assert "holds something other than an export" in said
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def curved(tmp_path: Path, own_cache: None) -> Grounds:
    """A night with a budget that leaves points of a curve also on a busy machine."""
    grounds = Grounds(make_repository(tmp_path / "curved", unigram()))
    grounds.try_scripts("t", [unigram(SHARPNESS=0.9), BROKEN], budget_s=1.0)
    return grounds


READ_BACK = """
import json, sys
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage
runs = Api().runs("t")
print(json.dumps([[run.name, run.config, SQLiteStorage.get_logs("t", run.name)] for run in runs]))
"""


@pytest.mark.slow
def test_what_is_exported_for_trackio_is_read_by_trackio(curved, tmp_path):
    store = tmp_path / "store"
    for _ in range(2):
        done = curved.nightshift_process("export", "trackio", "--out", str(store))  # imports trackio again
        assert done.stdout.endswith(f"see it with: TRACKIO_DIR={store} trackio show --project t\n"), done.stderr
    output = subprocess.run(
        [sys.executable, "-c", READ_BACK],
        env=environment(TRACKIO_DIR=str(store)),
        capture_output=True,
        text=True,
        check=True,
    )
    runs = {name: (config, logs) for name, config, logs in json.loads(output.stdout)}
    assert sorted(runs) == ["0000", "0001", "0002"]
    config, logs = runs["0001"]
    assert (config["SHARPNESS"], config["status"], config["title"]) == (0.9, "keep", "script 1")
    assert logs[0]["loss/seed0"] == 1.0
    assert logs[-1]["step"] == 1000
    assert logs[-1]["val_bpb"] == curved.attempts("t")[1].val_bpb
    assert "val_bpb" not in runs["0002"][1][-1]
