"""Tries that are started, wait in the queue, and are followed: nightshift try --start, --wait and --cancel."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import refused, training, wait_until
from json_page import faults
from nights import Grounds, make_repository, mounted, unigram

from agent.cli.tries import latest, tries_line, under_way
from agent.night.lock import is_held, only_night
from agent.records.place import Place

QUICK = ("--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off")


def said(grounds: Grounds, *words: str) -> dict[str, Any]:
    done = grounds.nightshift("try", *words, "--json")
    facts: dict[str, Any] = json.loads(done.stdout)
    assert facts["exit_code"] == done.returncode, done.stderr
    if facts["error"] is None:
        option = (
            "--start" if "in_line" in facts else next((word for word in words if word in ("--wait", "--cancel")), "")
        )
        assert faults(f"try {option}".strip(), facts) == []
    return facts


def edit(grounds: Grounds, script: str) -> None:
    (grounds.root / "train_mlx.py").write_text(script)


def git_folder(grounds: Grounds) -> Path:
    return Path(grounds.git("rev-parse", "--absolute-git-dir"))


@pytest.fixture(scope="module")
def lined(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """A repository in which tries are started, each test after the other; no process is left at the end."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("queue") / "user", unigram()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield grounds
        wait_until(lambda: not is_held(git_folder(grounds)))


def place_of(grounds: Grounds) -> Place:
    return Place.of(grounds.root / "train_mlx.py")


def test_tries_that_are_started_get_their_verdicts_one_after_the_other(lined):
    with only_night(git_folder(lined)):  # so that all of them wait
        edit(lined, unigram(SHARPNESS=0.9))
        first = said(lined, "-m", "sharper", "--start", "--tag", "t", *QUICK)
        assert (first["id"], first["state"], first["in_line"]) == ("t0001", "waiting", 0)
        edit(lined, unigram(SMOOTHING=2.0))
        second = said(lined, "-m", "smoother", "--start", "--tag", "t", *QUICK)
        assert (second["id"], second["in_line"], second["title"]) == ("t0002", 1, "smoother")
        edit(lined, unigram(SHARPNESS=0.8))
        assert said(lined, "-m", "less", "--start", "--tag", "t", *QUICK)["in_line"] == 2
        assert tries_line(latest(place_of(lined))) == "tries: 3 waiting"
        told = refused(lined.nightshift("try", "-m", "again", "--start", "--tag", "t", *QUICK))
        assert told.startswith("t0003, which waits for its verdict, has the same script; follow it with: ")
        assert said(lined, "--cancel", "t0003")["state"] == "cancelled"
        still = said(lined, "--wait", "t0002", "--for", "0.1")
        assert (still["state"], still["error"], still["attempt"]) == ("waiting", None, None)
    kept = said(lined, "--wait", "t0001")  # which starts the process that opens the night
    assert (kept["id"], kept["state"], kept["status"], kept["attempt"]) == ("t0001", "done", "keep", 1)
    assert kept["next"] == "edit on from here: attempt 1 is the best script now"
    assert (kept["based_on"], kept["missing_edits"], kept["merged_onto"]) == (0, [], None)
    assert lined.attempts("t")[0].proposal.script == unigram()  # as it is committed


def test_an_edit_that_became_stale_while_it_waited_is_merged_onto_the_best(lined):
    facts = said(lined, "--wait", "t0002")
    assert (facts["state"], facts["attempt"], facts["parent"], facts["merged_onto"]) == ("done", 2, 1, 1)
    tried = lined.attempts("t")[2].proposal
    assert tried.script == unigram(SHARPNESS=0.9, SMOOTHING=2.0)
    assert tried.hypothesis.endswith("Merged onto attempt 1, which was kept while it waited.")


def test_what_is_done_stays_and_what_was_cancelled_is_never_tried(lined):
    assert said(lined, "--wait", "t0001")["attempt"] == 1
    assert refused(lined.nightshift("try", "--wait", "t0003")) == "try t0003 was cancelled"
    assert len(lined.attempts("t")) == 3
    tries = [(one.id, one.state, one.attempt and one.attempt.number) for one in latest(place_of(lined))]
    assert sorted(tries) == [("t0001", "done", 1), ("t0002", "done", 2), ("t0003", "refused", None)]
    assert refused(lined.nightshift("try", "--cancel", "t0001")).startswith("try t0001 is done; only one that waits")
    facts = json.loads(lined.nightshift("status", "--json").stdout)
    assert faults("status", facts) == []
    assert len(facts["tries"]) == 3
    assert tries_line(latest(place_of(lined))) is None
    assert lined.git("status", "--porcelain", "experiments") == ""  # the queue is none of the repository's files


def test_an_edit_of_an_older_script_is_refused_before_it_waits(lined):
    edit(lined, unigram(SMOOTHING=3.0))
    for words in (("--start",), ()):
        facts = said(lined, "-m", "smoother", *words)
        assert (facts["exit_code"], facts["state"], facts["based_on"]) == (2, "stale", 0)
        assert [one["attempt"] for one in facts["missing_edits"]][:1] == [1]
        assert facts["error"].startswith("train_mlx.py lacks the kept edit")
        assert "nightshift take best" in facts["next"]
        assert "--anyway" in facts["next"]
    assert len(lined.attempts("t")) == 3


def test_so_is_one_with_another_budget_than_the_nights(lined):
    edit(lined, unigram(SMOOTHING=4.0))
    facts = said(lined, "--start", "-m", "smoother", "--budget-s", "20")
    assert facts["error"].startswith("night t has --budget-s 0.05, not 20; leave the option out")
    assert under_way(place_of(lined)) == []


def test_it_is_tried_anyway_where_that_is_asked_for(lined):
    edit(lined, unigram(SMOOTHING=3.0))
    facts = said(lined, "-m", "smoother", "--anyway")
    assert (facts["attempt"], facts["based_on"], facts["status"]) == (3, 0, "discard")
    assert [one["attempt"] for one in facts["missing_edits"]][:1] == [1]


def test_a_verdict_has_what_an_agent_goes_on_with(lined):
    edit(lined, unigram(SHARPNESS=0.9).replace("data = prepare", "assert False, 'no data'\n    data = prepare"))
    facts = said(lined, "-m", "no data")
    assert faults("try", facts) == []
    assert facts["status"] == "crash"
    assert facts["traceback"].splitlines()[0] == "Traceback (most recent call last):"
    assert facts["traceback"].splitlines()[-1] == "AssertionError: no data"
    assert Path(facts["log"]).read_text().strip().endswith("AssertionError: no data")
    assert facts["run_folder"] == str(Path(facts["log"]).parent)
    best = facts["best"]["number"]
    assert facts["best_ref"] == f"refs/experiments/t/{best:04d}"
    assert facts["go_back_with"] == f"git restore -s {facts['best_ref']} train_mlx.py"
    assert facts["next"].startswith(
        "it crashed: read traceback and log, repair the script and try it again; go back with:"
    )
    assert (facts["budget_s"], facts["gain_bpb"], facts["tokens_s"]) == (0.05, None, None)


def test_words_that_scoring_wrote_reach_no_author(lined):
    said_in_scoring = "raise RuntimeError('the held' + '-out text')"
    edit(
        lined,
        unigram(SHARPNESS=0.9).replace(
            "    return Unigram(mx.load", f"    {said_in_scoring}\n    return Unigram(mx.load"
        ),
    )
    done = lined.nightshift("try", "-m", "tells", "--json")
    assert json.loads(done.stdout)["status"] == "crash"
    log = (lined.root / "experiments" / "queue" / "drain.log").read_text()
    assert "crash (it trained, but its scoring failed: look at load_model" in log
    assert " of training a run; until the queue is empty\n" in log
    assert "  ideas    the queue alone\n" in log
    assert "held-out text" not in done.stdout + done.stderr


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_ids_that_do_not_exist_are_refused_in_a_sentence(grounds):
    for number in ("t0001", "1", "../nights", "t0001/../t0002", "\x1b[2J", "t" * 300):
        for word in ("--wait", "--cancel"):
            assert refused(grounds.nightshift("try", word, number)).startswith("there is no try ")


def test_how_long_to_wait_is_nothing_to_say_without_an_id(grounds):
    told = refused(grounds.nightshift("try", "-m", "sharper", "--for", "5"))
    assert told == "--for 5 says how long to wait; name the try with --wait ID"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_full_disk_leaves_no_half_try_behind(tmp_path):
    with mounted(tmp_path / "disk", "size=16m") as disk:
        grounds = Grounds(make_repository(disk / "user", unigram()))
        edit(grounds, unigram(SHARPNESS=0.9))
        with suppress(OSError), (disk / "hoard").open("wb", buffering=0) as hoard:
            while True:
                hoard.write(bytes(4096))
        told = refused(grounds.nightshift("try", "-m", "sharper", "--start"))
        assert told.startswith(
            "no space left on the disk; free some and resume with: nightshift try -m sharper --start"
        )
        assert latest(place_of(grounds)) == []


@pytest.mark.parametrize("way", ["folder", "link"])
def test_tries_that_came_with_the_repository_run_nothing(grounds, tmp_path, way):
    """An entry names the options of a night that it may open, and so programs that run with the user's rights."""
    queue = grounds.root / "experiments" / "queue"
    queue.mkdir(parents=True)
    script = unigram(SHARPNESS=0.9) + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    (queue / "0001.patch").write_text(f"Title: x\nOptions: --tag t --sandbox off\n\n{script}")
    (tmp_path / "profile").write_text("the user's")
    (queue / "drain.log").symlink_to(tmp_path / "profile")
    if way == "link":
        (grounds.root / "experiments").rename(grounds.root / "data")
        (grounds.root / "experiments").symlink_to("data")
    grounds.git("add", "--force", "experiments")
    edit(grounds, unigram(SMOOTHING=2.0))
    for words in (("try", "-m", "smoother", "--start"), ("try", "--wait", "t0001"), ("run", "--drain")):
        assert "git tracks experiments/queue" in refused(grounds.nightshift(*words))
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "profile").read_text() == "the user's"


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_try_whose_process_is_killed_goes_on(grounds):
    edit(grounds, unigram(SHARPNESS=0.9))
    said(grounds, "-m", "sharper", "--start", "--tag", "t", "--budget-s", "3", *QUICK[2:])
    journal = grounds.folder("t") / "journal.sqlite"
    wait_until(lambda: journal.exists() and len(grounds.attempts("t")) == 2 and grounds.attempts("t")[1].runs, 120)
    (worker,) = [one for one in psutil.process_iter(["cmdline", "cwd"]) if is_worker(one, grounds)]
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: not is_held(git_folder(grounds)))
    facts = said(grounds, "--wait", "t0001")
    assert (facts["state"], facts["status"], facts["attempt"]) == ("done", "keep", 1)
    assert [run.ending for run in grounds.attempts("t")[1].runs] == ["lost", "finished"]
    assert len(grounds.attempts("t")) == 2


def is_worker(process: psutil.Process, grounds: Grounds) -> bool:
    words = process.info["cmdline"] or []
    return "--drain" in words and process.info["cwd"] == str(grounds.root)


@pytest.mark.slow
def test_a_queue_that_is_stopped_stays_and_goes_on_when_it_is_asked_for(grounds):
    for title, sharpness in (("sharper", 0.9), ("sharpest", 1.0)):
        edit(grounds, unigram(SHARPNESS=sharpness))
        said(grounds, "-m", title, "--start", "--tag", "t", "--budget-s", "3", *QUICK[2:])
    wait_until(training(grounds, "t", 1), 120)
    now = said(grounds, "--wait", "t0001", "--for", "0.1")
    assert (now["state"], now["attempt"], now["doing"]) == ("running", 1, "training")
    assert grounds.nightshift("stop", "--now").returncode == 0
    wait_until(lambda: not is_held(git_folder(grounds)))
    assert said(grounds, "--wait", "t0002")["attempt"] == 2
    assert said(grounds, "--wait", "t0001")["attempt"] == 1
    assert [run.ending for run in grounds.attempts("t")[1].runs] == ["stopped", "finished"]
