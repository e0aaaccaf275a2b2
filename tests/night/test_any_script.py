"""Nights of scripts that report their own score: what they are told, what they see, and how their scores are named."""

import json
import re
import shutil
import sys

import pytest
from nights import PROJECT, Grounds, git, make_repository

from agent.experiment import Ending
from agent.night import opening
from agent.sandbox.sandboxes import candidates, why_unfit

pytestmark = pytest.mark.usefixtures("own_cache")

SANDBOXES = [sandbox for sandbox in candidates() if why_unfit(sandbox) is None]

BENCH = """\
import os
SPEED = 100.0  # rows a second  [50, 400]
print("rows_s: 1")
print("---")
print(f"rows_s: {SPEED + int(os.environ['NIGHTSHIFT_SEED'])}")
"""
RUN = ("--script", "bench.py", "--metric", "-rows_s", "--judge", "greedy", "--limit-s", "600", "--tag", "t")


def repository(root, **files):
    """A repository of somebody who never heard of nightshift's contract."""
    root.mkdir()
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return Grounds(root)


@pytest.fixture(scope="module")
def morning(tmp_path_factory):
    """After a night with a cheat, an honest edit, one that prints nothing, and one that crashes, from the queue."""
    grounds = repository(tmp_path_factory.mktemp("any") / "user", bench__py=BENCH)
    edits = {
        "prints nothing": BENCH.replace('print(f"rows', 'str(f"rows'),
        "crashes": BENCH.replace("import os", "import os, no_such_package"),
        "slower": BENCH.replace("100.0", "60.0"),
        "cheats": BENCH.replace("{SPEED", "{1e6 + SPEED"),
    }
    for title, text in edits.items():
        (grounds.root / "edit.py").write_text(text)
        done = grounds.nightshift("try", "--queue", "--edit", "edit.py", "-m", title, *RUN)
        assert done.returncode == 0, done.stderr
    (grounds.root / "edit.py").unlink()
    done = grounds.nightshift("run", "--drain", *RUN)
    assert done.returncode == 0, done.stderr
    return grounds, done.stdout


def test_a_better_number_is_kept_and_a_worse_one_is_not(morning):
    grounds, _ = morning
    assert [row["status"] for row in grounds.rows()] == ["keep", "crash", "crash", "discard", "keep"]
    assert [row["val_bpb"] for row in grounds.rows()] == ["100", "", "", "60", "1000100"]


def test_what_reports_no_number_says_so_in_one_sentence(morning):
    grounds, _ = morning
    _, nothing, crashed, *_ = grounds.rows()
    assert nothing["reason"] == "it prints rows_s above its last line ---: print it below"
    assert "No module named 'no_such_package'" in crashed["reason"]


def test_every_place_says_that_the_score_is_the_scripts_own(morning):
    grounds, said = morning
    assert all(row["protocol"].endswith("+self-reported") for row in grounds.rows())
    assert grounds.nightshift("report", "t").returncode == 0
    page = (grounds.root / "experiments/nights/t/report.html").read_text()
    status = grounds.nightshift("status", "t").stdout
    for shown in (said, page, status):
        assert "rows_s is self-reported: a number that the script gives itself; higher is better" in shown
        assert "-rows_s" not in shown
        assert "bits per byte" not in shown
        assert "val_bpb" not in shown
    answer = json.loads(grounds.nightshift("status", "t", "--json").stdout)
    assert answer["summary"]["night"]["options"]["metric"] == "-rows_s"
    assert answer["summary"]["night"]["protocol"].endswith("+self-reported")


def test_a_number_is_shown_everywhere_as_the_script_prints_it(morning):
    grounds, said = morning
    assert "rows_s 60 · 40 worse · worse" in said
    assert "best rows_s 1000100 (#4), the baseline has 100" in said
    shown = {
        words: grounds.nightshift(*words.split()).stdout for words in ("status t", "results t", "show t:4", "nights")
    }
    assert all("1000100" in text and "-1000100" not in text for text in shown.values())
    assert re.search(r"3 +60 +-40 ", shown["results t"])
    assert "higher is better" in shown["results t"]
    status, show, best, take = (
        json.loads(grounds.nightshift(*words.split(), "--json").stdout)
        for words in ("status t", "show t:3", "show t:4", "take t:0")
    )
    assert status["summary"]["best"]["val_bpb"] == 1000100
    assert (show["measured"]["val_bpb"], show["measured"]["lower_bpb"]) == (60, -40)
    assert best["attempt"]["runs"][0]["score"]["val_bpb"] == 1000100
    assert (take["val_bpb"], take["is_reported"]) == (100, True)


def test_the_night_says_how_the_script_is_told_its_seed(morning):
    assert "the script reads one from NIGHTSHIFT_SEED" in morning[1]


def test_nothing_is_audited_and_no_weights_are_wanted(morning):
    scores = [run.score for attempt in morning[0].attempts("t") for run in attempt.runs if run.score]
    assert {score.audit for score in scores} == {None}
    assert all(score.is_reported for score in scores)


@pytest.mark.parametrize("words", ["export mlx-lm t", "sample x t:4"])
def test_no_weights_are_missed_where_there_never_are_any(morning, words):
    done = morning[0].nightshift(*words.split())
    remedy = "itself; take the script with: nightshift take t:4, and run it\n"
    assert done.stderr == f"nightshift: night t has no weights, as its script reports rows_s {remedy}"


def test_its_best_script_is_taken_where_the_script_is(morning):
    grounds, _ = morning
    assert grounds.nightshift("take", "t:4").returncode == 0
    assert "1e6" in (grounds.root / "bench.py").read_text()


def test_an_edit_of_a_script_that_was_taken_is_put_aside(morning, tmp_path):
    grounds = Grounds(shutil.copytree(morning[0].root, tmp_path / "user", symlinks=True))
    script, mine = grounds.root / "bench.py", BENCH.replace("100.0", "77.0")
    script.write_text(mine)
    grounds.git("commit", "-qam", "mine")
    for text in (mine, mine + "# again\n"):
        script.write_text(text)
        done = grounds.nightshift("take", "t:0")
        assert (done.returncode, script.read_text()) == (0, BENCH), done.stderr
    assert (grounds.root / "bench.py.before-take").read_text() == mine + "# again\n"


def test_a_night_that_was_unpacked_is_taken_into_a_file_only_whose_text_it_has(morning, tmp_path):
    file = tmp_path / "t.tar.gz"
    assert morning[0].nightshift("pack", "t", "--out", str(file)).returncode == 0
    other = repository(tmp_path / "other", bench__py="import os\n")
    assert other.nightshift("unpack", str(file)).returncode == 0
    refusal = other.nightshift("take", "t:0")
    assert refusal.returncode == 2
    assert "has its script in bench.py, where no training script is here" in refusal.stderr
    (other.root / "bench.py").write_text(BENCH)
    other.git("commit", "-qam", "theirs")
    (other.root / "bench.py").write_text(BENCH.replace("100.0", "77.0"))
    assert other.nightshift("take", "t:4").returncode == 0
    assert "77.0" in (other.root / "bench.py.before-take").read_text()


def test_an_edit_is_tried_without_naming_the_script_again(morning):
    grounds, _ = morning
    script = grounds.root / "bench.py"
    script.write_text(BENCH.replace("100.0", "110.0"))
    done = grounds.nightshift("try", "-m", "faster", "--anyway", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reason"]
    assert grounds.attempts("t")[-1].proposal.script == script.read_text()
    script.write_text(BENCH.replace("100.0", "120.0"))
    (grounds.root / "below").mkdir()
    queued = Grounds(grounds.root / "below").nightshift("try", "--queue", "-m", "more", "--tag", "t", "--anyway")
    assert queued.returncode == 0, queued.stderr


SEES = """\
import json, os, pathlib, sys
WIDTH = 8
option = "--budget-s"
seen = {"options": sys.argv[1:], "beside": open("data/x.txt").read(), "python": sys.executable}
seen |= {"home": (pathlib.Path.home() / "notes.txt").read_text(), "hidden": list(map(os.path.exists, HIDDEN))}
json.dump({"score": 1.0, "seen": seen}, open("summary.json", "w"))
"""


@pytest.mark.parametrize("sandbox", range(len(SANDBOXES)), ids=[sandbox.name for sandbox in SANDBOXES])
def test_a_script_sees_what_it_is_shown_and_is_told_the_options_that_it_takes(tmp_path, monkeypatch, sandbox):
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    for name in ("notes.txt", "key.txt"):
        (home / name).write_text(name)
    monkeypatch.setenv("HOME", str(home))
    hidden = [str(home / "key.txt"), str(tmp_path / "user" / ".git")]
    grounds = repository(tmp_path / "user", bench__py=SEES.replace("HIDDEN", str(hidden)))
    (grounds.root / "data").mkdir()
    (grounds.root / "data" / "x.txt").write_text("x")
    monkeypatch.setattr(opening, "choose", lambda mode: SANDBOXES[sandbox])
    words = ("--script", "bench.py", "--metric", "score", "--tag", "t", "--budget-s", "1", "--limit-s", "30")
    shown = ("--read", "data", "--read", "~/notes.txt", "--python", sys.executable)
    (grounds.root / "experiments" / "queue").mkdir(parents=True)
    done = grounds.nightshift("run", "--drain", *words, *shown, "--judge", "greedy", HOME=str(home))
    assert done.returncode == 0, done.stderr + (grounds.folder("t") / "runs/0000/seed0/log.txt").read_text()
    seen = json.loads((grounds.folder("t") / "runs/0000/seed0/summary.json").read_text())["seen"]
    assert (grounds.root / "data" / "x.txt").read_text() == "x"  # what was shown outlives the folder of the run
    assert (home / "notes.txt").exists()
    assert seen["options"] == ["--budget-s", "1"]
    assert (seen["beside"], seen["home"], seen["python"]) == ("x", "notes.txt", sys.executable)
    assert seen["hidden"] == ([False, False] if SANDBOXES[sandbox].name == "bubblewrap" else seen["hidden"])


def test_a_script_without_dials_has_a_night_where_edits_wait(tmp_path):
    script = "import os\nprint('rows_s:', 1 + 0)\n"
    grounds = repository(tmp_path / "user", bench__py=script)
    words = ("--script", "bench.py", "--metric", "-rows_s", "--limit-s", "600")
    run = ("run", *words, "--judge", "greedy", "--experiments", "1", "--tag", "t")
    refused = grounds.nightshift(*run)
    assert (refused.returncode, "nothing to search" in refused.stderr) == (2, True)
    assert "or queue edits of your own" in refused.stderr
    (grounds.root / "edit.py").write_text(script.replace("1 + 0", "2 + 0"))
    assert grounds.nightshift("try", "--queue", "--edit", "edit.py", "-m", "two", *words).returncode == 0
    done = grounds.nightshift(*run)
    assert done.returncode == 0, done.stderr
    assert "at most 600 s a run" in done.stdout
    assert [row["status"] for row in grounds.rows()] == ["keep", "keep"]


def test_a_script_that_takes_no_budget_is_ended_at_the_limit(tmp_path):
    grounds = repository(tmp_path / "user", bench__py="import time\nWIDTH = 8\ntime.sleep(600)\n")
    words = ("--script", "bench.py", "--metric", "score", "--tag", "t", "--limit-s", "1")
    done = grounds.nightshift("run", *words, "--judge", "greedy")
    (first,) = grounds.attempts("t")
    assert {run.ending for run in first.runs} == {Ending.OVERRAN}
    assert done.returncode == 2
    assert "no score that counts" in done.stderr


def test_the_smallest_script_of_the_docs_is_scored_from_outside_and_audited(tmp_path, tiny_data, monkeypatch):
    text = (PROJECT / "docs" / "script.md").read_text()
    script = re.search(r"(?s)```python\n(.*?)```", text)[1]
    assert len([line for line in script.splitlines() if line.strip()]) < 35
    monkeypatch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
    grounds = Grounds(make_repository(tmp_path / "user", script))
    (grounds.root / "experiments" / "queue").mkdir(parents=True)
    done = grounds.nightshift("run", "--drain", "--judge", "greedy", "--tag", "t", "--budget-s", "0.5")
    assert done.returncode == 0, done.stderr
    (first,) = grounds.attempts("t")
    assert first.val_bpb < 9
    assert first.runs[0].score.audit.passed
