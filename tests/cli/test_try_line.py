"""Tries that are started, wait in a line, and are followed: nightshift try --start, --wait and --cancel."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import nothing_yet, refused, training, wait_until
from json_page import faults
from nights import Grounds, make_repository, mounted, unigram

from agent.night.lock import only_night
from agent.tries.line import TryLine, tries_facts, tries_line
from agent.tries.turn import turn

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
    """A repository in which tries are started, each test after the other; no worker is left at the end."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("line") / "user", unigram()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield grounds
        wait_until(lambda: not TryLine(grounds.root).is_worked())


def test_tries_that_are_started_get_their_verdicts_one_after_the_other(lined):
    with turn(git_folder(lined), lambda: None):  # so that all of them wait
        edit(lined, unigram(SHARPNESS=0.9))
        first = said(lined, "-m", "sharper", "--start", "--tag", "t", *QUICK)
        assert (first["id"], first["state"], first["in_line"]) == ("t0001", "waiting", 0)
        told = nothing_yet(lined.nightshift("status"))
        assert told.startswith("t0001, the first try, has not opened its night yet; follow it with: nightshift try --w")
        edit(lined, unigram(SMOOTHING=2.0))
        second = said(lined, "-m", "smoother", "--start", "--tag", "t", *QUICK)
        assert (second["id"], second["in_line"], second["title"]) == ("t0002", 1, "smoother")
        edit(lined, unigram(SHARPNESS=0.8))
        assert said(lined, "-m", "less", "--start", "--tag", "t", *QUICK)["in_line"] == 2
        assert tries_line(lined.root) in ("tries: 3 waiting", "tries: t0001 is at work, 2 waiting")
        told = refused(lined.nightshift("try", "-m", "again", "--start", "--tag", "t", *QUICK))
        assert told.startswith("t0003, which waits for its verdict, has the same script; follow it with: ")
        assert said(lined, "--cancel", "t0003")["state"] == "cancelled"
        still = said(lined, "--wait", "t0002", "--for", "0.1")
        assert (still["state"], still["error"], still["attempt"]) == ("waiting", None, None)
    kept = said(lined, "--wait", "t0001")
    assert (kept["id"], kept["state"], kept["status"], kept["attempt"]) == ("t0001", "done", "keep", 1)
    assert kept["next"] == "edit on from here: attempt 1 is the best script now"
    assert (kept["based_on"], kept["missing_edits"], kept["merged_onto"]) == (0, [], None)


def test_an_edit_that_became_stale_while_it_waited_is_merged_onto_the_best(lined):
    facts = said(lined, "--wait", "t0002")
    assert (facts["state"], facts["attempt"], facts["parent"], facts["merged_onto"]) == ("done", 2, 1, 1)
    tried = lined.attempts("t")[2].proposal
    assert tried.script == unigram(SHARPNESS=0.9, SMOOTHING=2.0)
    assert tried.hypothesis.endswith("Merged onto attempt 1, which was kept while it waited.")


def test_what_is_done_stays_and_what_was_cancelled_is_never_tried(lined):
    assert said(lined, "--wait", "t0001")["attempt"] == 1
    done = lined.nightshift("try", "--wait", "t0003")
    assert refused(done) == "try t0003 was cancelled"
    assert len(lined.attempts("t")) == 3
    assert [(one["id"], one["state"], one["attempt"]) for one in tries_facts(lined.root)] == [
        ("t0001", "done", 1),
        ("t0002", "done", 2),
        ("t0003", "cancelled", None),
    ]
    assert refused(lined.nightshift("try", "--cancel", "t0001")).startswith("try t0001 is done; only one that waits")
    facts = json.loads(lined.nightshift("status", "--json").stdout)
    assert faults("status", facts) == []
    assert facts["tries"] == tries_facts(lined.root)
    assert tries_line(lined.root) is None
    assert lined.git("status", "--porcelain", "experiments") == ""  # the line is none of the repository's files


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
    assert TryLine(lined.root).waiting() == []


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
    best = facts["best_attempt"]
    assert facts["best_ref"] == f"refs/experiments/t/{best:04d}"
    assert facts["go_back_with"] == f"git restore -s {facts['best_ref']} train_mlx.py"
    assert facts["next"].startswith("it crashed: read traceback, repair the script and try it again; or go back with:")
    assert (facts["budget_s"], facts["gain_bpb"], facts["tokens_s"]) == (0.05, None, None)


def test_a_try_that_waits_when_a_night_begins_stays_in_the_line_until_that_has_ended(lined):
    with ExitStack() as others, ExitStack() as night:
        others.enter_context(turn(git_folder(lined), lambda: None))
        edit(lined, unigram(SHARPNESS=0.9, SMOOTHING=7.0))
        number = said(lined, "-m", "much smoother", "--start")["id"]
        night.enter_context(only_night(git_folder(lined)))("u", lined.folder("u"))
        others.close()
        facts = said(lined, "--wait", number)
        assert (facts["exit_code"], facts["state"]) == (130, "unfinished")
        assert "the process that works through the line has ended (night u (pid " in facts["error"]
    assert said(lined, "--wait", number)["state"] == "done"


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
    assert "crash (it trained, but its scoring failed: look at load_model" in done.stderr
    assert "held-out text" not in done.stdout + done.stderr


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_while_a_night_runs_tries_are_refused_with_the_way_to_its_queue(grounds):
    edit(grounds, unigram(SHARPNESS=0.9))
    with only_night(git_folder(grounds)) as tell:
        tell("u", grounds.folder("u"))
        for words in ((), ("--start",)):
            told = refused(grounds.nightshift("try", "-m", "sharper", *words))
            assert told.startswith("night u (pid ")
            assert "leave it your edit with: nightshift submit train_mlx.py -m 'what and why'; or end it" in told
    assert not (grounds.root / "experiments").exists()


def test_ids_that_do_not_exist_are_refused_in_a_sentence(grounds):
    for number in ("t0001", "1", "../nights", "t0001/../t0002", "\x1b[2J", "t" * 300):
        for word in ("--wait", "--cancel"):
            assert refused(grounds.nightshift("try", word, number)).startswith("there is no try ")


def test_how_long_to_wait_is_nothing_to_say_without_an_id(grounds):
    told = refused(grounds.nightshift("try", "-m", "sharper", "--for", "5"))
    assert told == "--for 5 says how long to wait; name the try with --wait ID"


def test_rubbish_in_the_folder_of_the_line_is_left_alone(grounds):
    folder = grounds.root / "experiments" / "tries"
    folder.mkdir(parents=True)
    (folder / "t0001").write_text("a file")
    (folder / "t0002").symlink_to(grounds.root)
    (folder / "t0003").mkdir()
    for number, request in enumerate(('{"script": 1}', "[" * 9999, "{}", "null", '"x"'), start=4):
        (folder / f"t{number:04d}").mkdir()
        (folder / f"t{number:04d}" / "request.json").write_text(request)
    (folder / "t0009").mkdir()
    (folder / "t0009" / "request.json").symlink_to("/etc/passwd")
    (folder / "notes.txt").write_text("mine")
    for number in ("t0003", "t0004", "t0005", "t0006", "t0007", "t0008", "t0009"):
        assert "request.json cannot be read" in refused(grounds.nightshift("try", "--wait", number))
    for number in ("t0001", "t0002"):
        assert refused(grounds.nightshift("try", "--wait", number)).startswith("there is no try")
    assert (tries_facts(grounds.root), tries_line(grounds.root)) == ([], None)


def test_a_line_that_cannot_be_written_is_refused_in_a_sentence(grounds):
    (grounds.root / "experiments").mkdir()
    (grounds.root / "experiments" / "tries").write_text("a file")
    edit(grounds, unigram(SHARPNESS=0.9))
    assert "cannot use" in refused(grounds.nightshift("try", "-m", "sharper", "--start"))


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
        assert TryLine(grounds.root).latest(9) == []


@pytest.fixture
def brought(grounds: Grounds, tmp_path: Path) -> Path:
    """The folder of a line that came with the repository, with a try that would run a script with the user's rights."""
    folder = grounds.root / "experiments" / "tries"
    (folder / "t0001").mkdir(parents=True)
    script = unigram(SHARPNESS=0.9) + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    facts = {"script": script, "file": "x", "path": "train_mlx.py", "message": "x", "anyway": True, "submitted": ""}
    terms = {"sandbox": "off", "judge": "greedy"}
    facts |= {"tag": "t", "budget_s": 0.05, "seed": None, "terms": terms}
    (folder / "t0001" / "request.json").write_text(json.dumps(facts))
    for name in ("profile", "profile-2"):
        (tmp_path / name).write_text("the user's")
    (folder / "t0001" / "log.txt").symlink_to(tmp_path / "profile")
    (folder / "worker.log").symlink_to(tmp_path / "profile-2")
    return folder


@pytest.mark.parametrize("way", ["folder", "link", "case"])
def test_tries_that_came_with_the_repository_run_nothing_and_write_nowhere(grounds, brought, tmp_path, way):
    index = git_folder(grounds) / "index"
    if way == "link":
        (grounds.root / "experiments").rename(grounds.root / "data")
        (grounds.root / "experiments").symlink_to("data")
        grounds.git("add", "--force", "experiments")
    elif way == "case":  # as on the disk of a Mac, where this is the same folder
        blob = grounds.git("hash-object", "-w", str(brought / "t0001" / "request.json")).strip()
        grounds.git("update-index", "--add", "--cacheinfo", f"100644,{blob},Experiments/Tries/t0001/request.json")
    else:
        grounds.git("add", "--force", "experiments")
    before = index.read_bytes()
    edit(grounds, unigram(SMOOTHING=2.0))
    for words in (("-m", "smoother", "--start"), ("--wait", "t0001"), ("--cancel", "t0001"), ("--work",)):
        assert "git tracks experiments/tries" in refused(grounds.nightshift("try", *words))
    assert not (tmp_path / "ran").exists()
    assert [(tmp_path / name).read_text() for name in ("profile", "profile-2")] == ["the user's"] * 2
    assert index.read_bytes() == before


def test_a_log_that_is_a_link_is_not_written_through(grounds, brought, tmp_path):
    facts = said(grounds, "--wait", "t0001")
    assert facts["exit_code"] == 2
    assert "log.txt is no plain file; remove it" in facts["error"]
    assert [(tmp_path / name).read_text() for name in ("profile", "profile-2")] == ["the user's"] * 2
    assert not (tmp_path / "ran").exists()


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_try_whose_process_is_killed_goes_on(grounds):
    edit(grounds, unigram(SHARPNESS=0.9))
    said(grounds, "-m", "sharper", "--start", "--tag", "t", "--budget-s", "3", *QUICK[2:])
    journal = grounds.folder("t") / "journal.sqlite"
    wait_until(lambda: journal.exists() and len(grounds.attempts("t")) == 2 and grounds.attempts("t")[1].runs, 120)
    (worker,) = [one for one in psutil.process_iter(["cmdline", "cwd"]) if is_worker(one, grounds)]
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: not TryLine(grounds.root).is_worked())
    assert [entry.state for entry in TryLine(grounds.root).latest(9)] == ["waiting"]
    facts = said(grounds, "--wait", "t0001")
    assert (facts["state"], facts["status"], facts["attempt"]) == ("done", "keep", 1)
    assert [run.ending for run in grounds.attempts("t")[1].runs] == ["lost", "finished"]
    (grounds.root / "experiments" / "tries" / "t0001" / "answer.json").unlink()  # as if killed before it was written
    assert said(grounds, "--wait", "t0001")["attempt"] == 1
    assert len(grounds.attempts("t")) == 2


def is_worker(process: psutil.Process, grounds: Grounds) -> bool:
    words = process.info["cmdline"] or []
    return words[-2:] == ["try", "--work"] and process.info["cwd"] == str(grounds.root)


@pytest.mark.slow
def test_a_line_that_is_stopped_stays_and_goes_on_when_it_is_asked_for(grounds):
    for title, sharpness in (("sharper", 0.9), ("sharpest", 1.0)):
        edit(grounds, unigram(SHARPNESS=sharpness))
        said(grounds, "-m", title, "--start", "--tag", "t", "--budget-s", "3", *QUICK[2:])
    wait_until(training(grounds, "t", 1), 120)
    now = said(grounds, "--wait", "t0001", "--for", "0.1")
    assert (now["state"], now["attempt"], now["doing"]) == ("running", 1, "training")
    assert grounds.nightshift("stop", "--now").returncode == 0
    wait_until(lambda: not TryLine(grounds.root).is_worked())
    assert [entry.state for entry in TryLine(grounds.root).waiting()] == ["waiting", "waiting"]
    assert said(grounds, "--wait", "t0002")["attempt"] == 2
    assert said(grounds, "--wait", "t0001")["attempt"] == 1
    assert [run.ending for run in grounds.attempts("t")[1].runs] == ["stopped", "finished"]
