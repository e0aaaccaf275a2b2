"""What is taken out of a night: a replay, tables for other programs, and comparisons."""

import csv
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import refused, wait_until
from json_page import faults
from nights import BROKEN, Grounds, command, environment, git, make_repository, unigram
from terminals import Terminal

from agent.lab import hardware
from agent.night.lock import holder, only_night


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, trained_night: Path) -> Iterator[Grounds]:
    """A night of four attempts for all tests here: the baseline, two gains, a crash."""
    root = tmp_path_factory.mktemp("taking")
    cache = root / "cache"
    cache.mkdir()
    for folder in ("blas", "kernels"):
        shared = hardware.cache_root() / folder
        shared.mkdir(parents=True, exist_ok=True)
        (cache / folder).symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        patch.setenv("NIGHTSHIFT_CACHE", str(cache))
        yield Grounds(Path(shutil.copytree(trained_night, root / "user")))


# ---- replay ----------------------------------------------------------------------------------------------------------


def everything(grounds: Grounds, tag: str) -> dict[str, bytes]:
    """All that a night is: its files apart from replays, its refs, the ledger."""
    files = [path for path in grounds.folder(tag).rglob("*") if path.is_file() and "replays" not in path.parts]
    files += [grounds.root / "results.tsv"]
    refs = {"refs": grounds.git("for-each-ref").encode()}
    return refs | {str(path): path.read_bytes() for path in files if not path.name.startswith("journal.sqlite-")}


def test_a_replay_without_chance_gives_the_same_score_and_touches_nothing_of_the_night(grounds):
    before = everything(grounds, "t")
    done = grounds.nightshift("replay", "2")
    assert done.returncode == 0, done.stderr
    bpb = f"{grounds.attempts('t')[2].val_bpb:.6f}"
    assert f"\n  then  {bpb}  seed 0, 20" in done.stdout
    assert f"\n  now   {bpb}  seed 0, 0.05 s on " in done.stdout
    assert f"\nreproduced exactly: {bpb} with seed 0, then and now\n" in done.stdout
    assert everything(grounds, "t") == before

    (folder,) = grounds.folder("t").glob("replays/2-*")
    assert f"kept in {folder.relative_to(grounds.root)}: " in done.stdout
    names = {"model.safetensors", "replay.json", "score.log", "summary.json", "train.log", "train_mlx.py"}
    assert {path.name for path in folder.iterdir()} - {"metrics.jsonl"} == names  # busy machines make no point of it
    assert (folder / "train_mlx.py").read_text() == grounds.attempts("t")[2].proposal.script
    told = json.loads((folder / "replay.json").read_text())
    assert (told["verdict"], told["difference_bpb"], told["now"]["seed"]) == ("reproduced", 0.0, 0)
    assert faults("replay", {"schema_version": 1, "error": None, "exit_code": 0} | told) == []
    shutil.rmtree(folder)


def test_an_edit_whose_commits_are_elsewhere_says_where_to_fetch_them(grounds, tmp_path):
    git(tmp_path, "clone", "-q", "--no-local", "--single-branch", str(grounds.root), "clone")
    shutil.copytree(grounds.folder("t"), tmp_path / "clone" / "experiments" / "nights" / "t")
    refs = "refs/experiments/t/*:refs/experiments/t/*"
    without = refused(Grounds(tmp_path / "clone").nightshift("show", "1", "--diff"))
    assert "the edit of attempt 1 cannot be shown: commit " in without
    assert f"is not in this repository; fetch it from where the night ran: git fetch REMOTE '{refs}'" in without


@pytest.mark.slow
def test_a_night_of_which_only_record_and_commits_are_here_is_replayed_with_the_files_beside_the_script(
    grounds, tmp_path
):
    assert grounds.nightshift("export", "record", "t").returncode == 0
    elsewhere = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-local", "--single-branch", str(grounds.root), "clone")
    shutil.copytree(grounds.root / "experiments" / "shipped", elsewhere / "experiments" / "shipped")
    shutil.rmtree(grounds.root / "experiments" / "shipped")
    clone = Grounds(elsewhere)
    without = refused(clone.nightshift("replay", "t:1"))
    refs = "refs/experiments/t/*:refs/experiments/t/*"
    assert f"is not in this repository; fetch it from where the night ran: git fetch REMOTE '{refs}'" in without

    git(elsewhere, "fetch", "-q", "origin", refs)
    fixed = (
        clone.folder("t") / "fixed"
    )  # as they may come with a clone: without a journal, no checksum vouches for them
    fixed.mkdir(parents=True)
    (fixed / "prepare.py").write_text(f"open({str(tmp_path / 'has run')!r}, 'w')\nraise SystemExit(1)\n")
    done = clone.nightshift("replay", "t:1", "--seed", "5", "--out", str(tmp_path / "kept"), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    now, then = told["now"], told["then"]
    assert (told["attempt"], now["seed"], then["runs"], told["ending"]) == (1, 5, 1, "finished")
    assert told["verdict"] == "unknown"
    assert "since the night has not measured its noise" in told["sentence"]
    assert now["val_bpb"] == pytest.approx(then["val_bpb"])
    assert (tmp_path / "kept" / "model.safetensors").stat().st_size > 1000
    assert not (tmp_path / "has run").exists()
    assert list(clone.folder("t").iterdir()) == [
        fixed
    ]  # nothing is left in a folder that a night would take for its own


def test_a_replay_of_a_crash_crashes_again_and_keeps_its_log(grounds, tmp_path):
    done = grounds.nightshift("replay", "3", "--out", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    assert "failed again: exit code 1: ValueError: no such width; then: exit code 1: ValueError" in done.stdout
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"replay.json", "train.log", "train_mlx.py"}
    assert "no such width" in (tmp_path / "kept" / "train.log").read_text()
    assert f"{tmp_path / 'kept'} holds something already; name a new folder with --out" in refused(
        grounds.nightshift("replay", "3", "--out", str(tmp_path / "kept"))
    )


def test_a_replay_is_refused_while_a_night_runs_and_for_what_is_not_there(grounds):
    with only_night(grounds.root / ".git") as tell:
        tell("wide", grounds.folder("wide"))
        said = refused(grounds.nightshift("replay", "1"))
    assert said.startswith("night wide (pid ")
    assert said.endswith("is running in this repository; end it with: nightshift stop")
    assert "night t has no attempt 9; there are: 0 to 3" in refused(grounds.nightshift("replay", "9"))
    assert "no night nov01 is known here; there are: t" in refused(grounds.nightshift("replay", "nov01:1"))


@pytest.mark.parametrize(
    "words", [["replay", "2"], ["sample", "def"], ["run", "--tag", "t"], ["confirm"], ["try", "-m", "more"]]
)
def test_a_night_that_git_tracks_runs_nothing_here(grounds, words):
    index = Path(grounds.git("rev-parse", "--absolute-git-dir").strip()) / "index"
    before = index.read_bytes()
    grounds.git("add", "--force", "experiments/nights/t/journal.sqlite")
    try:
        said = refused(grounds.nightshift(*words))
    finally:
        index.write_bytes(before)
    assert "git tracks experiments/nights/t" in said
    assert "git rm -r --cached experiments/nights/t" in said


def test_no_night_opens_in_a_folder_that_came_with_the_repository(grounds):
    index = Path(grounds.git("rev-parse", "--absolute-git-dir").strip()) / "index"
    before = index.read_bytes()
    blob = grounds.git("hash-object", "-w", "train_mlx.py").strip()
    grounds.git("update-index", "--add", "--cacheinfo", f"100644,{blob},experiments/nights/u/notes.jsonl")
    try:
        said = refused(grounds.nightshift("run", "--tag", "u", "--experiments", "1"))
    finally:
        index.write_bytes(before)
    assert "git tracks experiments/nights/u" in said
    assert not grounds.folder("u").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("how", ["signal", "stop"])
def test_a_replay_that_is_ended_early_leaves_nothing(tmp_path, how):
    grounds = Grounds(make_repository(tmp_path / "slow", unigram()))
    grounds.try_scripts("t", [], budget_s=16.0)
    before = everything(grounds, "t")
    replay = grounds.start("replay", "0")
    wait_until(lambda: list(grounds.folder("t").glob("replays/*/work/runs/0000/seed0/out/metrics.jsonl")))
    who = holder(grounds.root / ".git")
    assert who is not None
    assert who.tag.startswith("t/replays/0-")
    if how == "signal":
        replay.send_signal(signal.SIGINT)
    else:
        assert "t/replays/0-" in refused(grounds.nightshift("status", "--follow"))
        assert grounds.nightshift("stop").returncode == 0  # after its run, which goes on
        assert replay.poll() is None
        assert grounds.nightshift("stop", "--now").returncode == 0
    said = replay.communicate(timeout=60)[0]
    assert replay.returncode == 130, said
    assert "the replay was ended early, and nothing of it is kept" in said
    assert not list(grounds.folder("t").glob("replays"))
    assert everything(grounds, "t") == before


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_replay_on_a_terminal_shows_its_run_and_ends_with_the_verdict(tmp_path):
    grounds = Grounds(make_repository(tmp_path / "seen", unigram()))
    grounds.try_scripts("t", [], budget_s=3.0)
    with Terminal(command("replay", "0"), grounds.root, 80) as terminal:
        terminal.until(lambda: "tokens/s" in terminal.text())
        running = terminal.text()
        assert terminal.to_the_end() == 0
        ended = terminal.text()
    for frame in (running, ended):
        assert "replay of attempt 0 of night t, seed 0: baseline" in frame
        assert max(map(len, frame.splitlines())) <= 80
    assert "s left" in running
    assert "reproduced exactly" in ended
    assert "tokens/s" not in ended


# ---- export ----------------------------------------------------------------------------------------------------------


def test_tables_have_a_row_for_each_attempt_with_its_dials_and_replace_earlier_ones(grounds, tmp_path):
    for _ in range(2):
        done = grounds.nightshift("export", "csv", "--out", str(tmp_path / "out.csv"))
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {tmp_path / 'out.csv'}: 4 attempts of night t\n"
    rows = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    history = grounds.attempts("t")
    assert [row["attempt"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["status"] for row in rows] == ["keep", "keep", "keep", "crash"]
    assert [row["dial.SHARPNESS"] for row in rows] == ["0.5", "0.7", "0.9", "0.5"]
    assert [float(row["val_bpb"] or 0) for row in rows] == [one.val_bpb or 0 for one in history]
    assert rows[2]["is_incumbent"] == "True"
    assert json.loads(rows[1]["dials"]) == {"SHARPNESS": [0.5, 0.7]}
    assert [json.loads(row["runs"])[0]["ending"] for row in rows][2:] == ["finished", "crashed"]
    kinds = [json.loads(row["decisions"])[0]["kind"] for row in rows]
    assert kinds == ["baseline", "kept", "kept", "crashed"]

    for kind in ("jsonl", "parquet"):
        done = grounds.nightshift("export", kind, "t", "--out", str(tmp_path))  # a folder gets a file inside
        assert done.stdout == f"wrote {tmp_path / f't.{kind}'}: 4 attempts of night t\n", done.stderr
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "t.parquet").to_pylist()
    for row, line, packed in zip(rows, lines, table, strict=True):
        for name in ("val_bpb", "spent_s", "title", "dial.SHARPNESS", "protocol", "sigma_bpb"):
            assert line[name] == packed[name]
            assert str("" if line[name] is None else line[name]) == row[name]
        assert line["runs"] == packed["runs"]
        assert line["decisions"] == packed["decisions"]
    assert json.loads(table[1]["dials"]) == {"SHARPNESS": [0.5, 0.7]}


def test_an_export_replaces_nothing_but_an_export(grounds, tmp_path):
    (tmp_path / "mine.csv").write_text("name,age\nme,7\n")
    (tmp_path / "mine.jsonl").write_text("[1, 2]\n")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1, not really")
    for kind in ("csv", "jsonl", "parquet"):
        before = (tmp_path / f"mine.{kind}").read_bytes()
        said = refused(grounds.nightshift("export", kind, "--out", str(tmp_path / f"mine.{kind}")))
        assert said.endswith("holds something other than an export of this format; name another file with --out")
        assert (tmp_path / f"mine.{kind}").read_bytes() == before
    said = refused(grounds.nightshift("export", "csv", "--out", str(tmp_path / "no" / "t.csv")))
    assert said == f"{tmp_path / 'no'} is not a folder; make it first, or name another file with --out"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "mine.jsonl", "mine.parquet"]


def test_an_export_for_a_tracker_replaces_nothing_but_an_export(grounds, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    said = refused(grounds.nightshift("export", "trackio", "--out", str(tmp_path)))
    assert said == f"{tmp_path} holds something other than an export for trackio; name another folder with --out"
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_tracker_that_is_not_installed_is_named_with_the_command_that_installs_it(grounds, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    said = refused(grounds.nightshift("export", "trackio"))
    assert "needs trackio; install it with: " in said
    assert said.endswith("[trackio]'")


@pytest.fixture
def curved(tmp_path: Path, own_cache: None) -> Grounds:
    """A night with a budget that leaves points of a curve also on a busy machine."""
    found = Grounds(make_repository(tmp_path / "curved", unigram()))
    found.try_scripts("t", [unigram(SHARPNESS=0.9), BROKEN], budget_s=1.0)
    return found


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
        done = curved.nightshift_process("export", "trackio", "--out", str(store))  # which imports it anew
        assert done.stdout.endswith(f"see it with: TRACKIO_DIR={store} trackio show --project t\n"), done.stderr
    told = subprocess.run(
        [sys.executable, "-c", READ_BACK],
        env=environment(TRACKIO_DIR=str(store)),
        capture_output=True,
        text=True,
        check=True,
    )
    runs = {name: (config, logs) for name, config, logs in json.loads(told.stdout)}
    assert sorted(runs) == ["0000", "0001", "0002"]
    config, logs = runs["0001"]
    assert (config["SHARPNESS"], config["status"], config["title"]) == (0.9, "keep", "script 1")
    assert logs[0]["loss/seed0"] == 1.0
    assert logs[-1]["step"] == 1000
    assert logs[-1]["val_bpb"] == curved.attempts("t")[1].val_bpb
    assert "val_bpb" not in runs["0002"][1][-1]


# ---- compare ---------------------------------------------------------------------------------------------------------


def test_two_attempts_stand_side_by_side_with_the_dials_that_differ(grounds):
    done = grounds.nightshift("compare", "0", "t:2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["A  t:0: baseline", "B  t:2: script 2"]
    cells = {line.split("  ")[0]: line.split() for line in lines[2:-1]}
    for number in (0, 2):
        assert f"{grounds.attempts('t')[number].val_bpb:.6f}, mean of 1 seed" in done.stdout
    assert cells["SHARPNESS"] == ["SHARPNESS", "0.5", "0.9"]
    assert lines[-1].startswith("no verdict: how much of the difference is chance is not known")

    told = json.loads(grounds.nightshift("compare", "0", "2", "--json").stdout)
    assert told["dials"] == {"SHARPNESS": [0.5, 0.9]}
    assert (told["a"]["attempt"]["number"], told["b"]["attempt"]["proposal"]["title"], told["winner"]) == (
        0,
        "script 2",
        "unknown",
    )
    assert "(exit code 1: ValueError: no such width)" in grounds.nightshift("compare", "0", "3").stdout

    edit = grounds.nightshift("compare", "1", "2", "--diff").stdout.splitlines()
    assert [line for line in edit if line[:1] in "+-"] == [
        "--- t:1",
        "+++ t:2",
        "-SHARPNESS = 0.7  # 1.0 would be the frequencies themselves  [0.1, 2.0]",
        "+SHARPNESS = 0.9  # 1.0 would be the frequencies themselves  [0.1, 2.0]",
    ]
    assert grounds.nightshift("compare", "2", "t", "--diff").stdout == "t:2 and t:2 are the same script\n"


def test_what_cannot_be_compared_is_refused_with_what_can(grounds):
    assert "night t has no attempt 7; there are: 0 to 3" in refused(grounds.nightshift("compare", "1", "7"))
    assert refused(grounds.nightshift("compare", "1", "t:1")).startswith("t:1 cannot be compared with itself; name")
    assert "no night u is known here; there are: t" in refused(grounds.nightshift("compare", "t", "u"))
    told = json.loads(grounds.nightshift("compare", "t", "t:x", "--json").stdout)
    assert told["exit_code"] == 2
