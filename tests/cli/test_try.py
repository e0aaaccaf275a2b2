"""`nightshift try`: one edit of a person's own, from the working tree through the queue to the verdict."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import refused, training, wait_until
from json_page import faults
from nights import Grounds, make_repository, unigram

from agent.experiment import Ending
from agent.night.lock import is_held, only_night

QUICK = ("--tag", "t", "--budget-s", "0.05", "--judge", "greedy", "--sandbox", "off")
COMMITTED = unigram()


def said(grounds: Grounds, *words: str) -> dict[str, Any]:
    done = grounds.nightshift("try", *words, "--json")
    facts: dict[str, Any] = json.loads(done.stdout)
    assert facts["exit_code"] == done.returncode, done.stderr
    if facts["error"] is None:
        wait = next((word for word in words if word in ("--wait", "--cancel")), "")
        assert faults(f"try {'--start' if 'in_line' in facts else wait}".strip(), facts) == []
    return facts


def edit(grounds: Grounds, script: str) -> None:
    (grounds.root / "train_mlx.py").write_text(script)


# The tests of this part follow one another in one repository, as a person's afternoon does.


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """A repository in which edits are tried; no process is left at the end."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("try") / "user", COMMITTED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield grounds
        wait_until(lambda: not is_held(grounds.root / ".git"))


def test_tries_that_are_started_wait_in_the_queue_while_a_night_runs(tried):
    with only_night(tried.root / ".git"):
        edit(tried, unigram(SHARPNESS=0.9))
        first = said(tried, "-m", "sharper\nThe counts are large.", "--start", *QUICK)
        assert (first["id"], first["state"], first["in_line"]) == ("t0001", "waiting", 0)
        edit(tried, unigram(SMOOTHING=2.0))
        second = said(tried, "-m", "smoother", "--start", *QUICK)
        assert (second["id"], second["in_line"], second["title"]) == ("t0002", 1, "smoother")
        edit(tried, unigram(SHARPNESS=0.8))
        assert said(tried, "-m", "less", "--queue", *QUICK)["in_line"] == 2
        assert said(tried, "--cancel", "t0003")["state"] == "cancelled"
        assert said(tried, "--wait", "t0002", "--for", "0.1")["state"] == "waiting"


def test_the_first_try_is_measured_against_the_committed_script(tried):
    edit(tried, unigram(SHARPNESS=0.7))
    kept = said(tried, "--wait", "t0001")  # starts the process that opens the night
    assert (kept["id"], kept["state"], kept["status"], kept["attempt"]) == ("t0001", "done", "keep", 1)
    assert (kept["parent"], kept["merged_onto"]) == (0, None)
    first, edited = (attempt.proposal for attempt in tried.attempts("t")[:2])
    assert first.script == COMMITTED
    assert (edited.title, edited.hypothesis, edited.proposer) == ("sharper", "The counts are large.", "queue: 0001")
    assert edited.script == unigram(SHARPNESS=0.9)
    assert (tried.root / "train_mlx.py").read_text() == unigram(SHARPNESS=0.7)


def test_an_edit_that_became_stale_while_it_waited_is_merged_onto_the_best(tried):
    facts = said(tried, "--wait", "t0002")
    assert (facts["state"], facts["attempt"], facts["parent"], facts["merged_onto"]) == ("done", 2, 1, 1)
    assert tried.attempts("t")[2].proposal.script == unigram(SHARPNESS=0.9, SMOOTHING=2.0)


def test_an_edit_of_an_older_script_is_refused_and_tried_anyway_where_that_is_asked_for(tried):
    edit(tried, unigram(SMOOTHING=3.0))
    facts = said(tried, "-m", "smoother")
    assert (facts["exit_code"], facts["state"], facts["based_on"]) == (2, "stale", 0)
    assert facts["missing_edits"][0]["attempt"] == 1
    assert facts["error"].startswith("train_mlx.py was made from attempt 0 and lacks what was kept since: #1 sharper")

    verdict = tried.nightshift("try", "-m", "blunt\x1b[2J\tit is\n\nwhy\x07", "--anyway").stdout.splitlines()
    assert tried.attempts("t")[3].proposal.title == "blunt\\x1b[2J it is"
    assert " worse than its parent (val_bpb " in verdict[0]
    commands = [words for line in verdict if (words := re.match(r"  nightshift (\S+ \S+)  ", line))]
    assert [words[1] for words in commands] == ["take t:1", "show t:3", "results t"]
    assert all(tried.nightshift(*words[1].split()).returncode == 0 for words in commands)
    assert "SHARPNESS = 0.9" in (tried.root / "train_mlx.py").read_text()


def test_what_was_tried_cannot_be_tried_again_and_what_was_cancelled_never_is(tried):
    edit(tried, unigram(SMOOTHING=3.0) + "\n# with a comment\n")
    again = refused(tried.nightshift("try", "-m", "again"))
    assert "train_mlx.py is attempt 3 of night t, discard (see: nightshift show t:3); change something first" in again
    edit(tried, COMMITTED)
    assert "changes nothing that runs in the script as it was committed" in refused(
        tried.nightshift("try", "-m", "back")
    )
    assert refused(tried.nightshift("try", "--wait", "t0003")) == "try t0003 was cancelled"
    assert refused(tried.nightshift("try", "--cancel", "t0001")).startswith("try t0001 is done; only one that waits")
    facts = json.loads(tried.nightshift("status", "--json").stdout)
    assert {entry["id"]: entry["state"] for entry in facts["tries"]}["t0003"] == "refused"
    assert tried.git("status", "--porcelain", "experiments") == ""  # the queue is none of the repository's files


def test_words_that_scoring_wrote_reach_no_proposer(tried):
    leaks = "    raise RuntimeError('the held' + '-out text')\n    return Unigram(mx.load"
    edit(tried, unigram(SHARPNESS=0.95).replace("    return Unigram(mx.load", leaks))
    done = tried.nightshift("try", "-m", "tells", "--anyway", "--json")
    assert json.loads(done.stdout)["status"] == "crash"
    wait_until(lambda: not is_held(tried.root / ".git"))  # the process prints all tries at its end
    log = (tried.root / "experiments" / "queue" / "drain.log").read_text()
    assert "crashed (scoring: exit code 1; look at load_model" in log
    assert "held-out text" not in done.stdout + done.stderr + log


# ---- what is refused before a night is opened ------------------------------------------------------------------------


def test_a_slip_leaves_no_night_behind(grounds):
    edit(grounds, "if True:\n    def main(:\n")
    broken = grounds.nightshift("try", "-m", "broken", "--tag", "t")
    assert "train_mlx.py line 2 does not parse" in refused(broken)
    assert broken.stderr.splitlines()[1:] == ["    def main(:", "             ^"]
    edit(grounds, unigram(SHARPNESS=0.9))
    assert "say what is tried and why, as in: " in refused(grounds.nightshift("try", "-m", " \n ", "--tag", "t"))
    for number in ("t0001", "t0001/../t0002"):
        sentence = f"there is no try '{number}' here; the latest ones: none"
        assert refused(grounds.nightshift("try", "--wait", number)) == sentence
    assert not (grounds.root / "experiments").exists()
    assert grounds.git("for-each-ref", "refs/experiments", "refs/heads/experiments") == ""


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


@pytest.mark.slow
def test_two_tries_that_are_started_at_one_moment_are_both_tried_and_share_a_log(grounds):
    for name, sharpness in (("a.py", 0.9), ("b.py", 0.7)):
        (grounds.root / name).write_text(unigram(SHARPNESS=sharpness))
    begun = [grounds.start("try", "--start", "-m", name, "--edit", name, *QUICK) for name in ("a.py", "b.py")]
    for process in begun:
        out = process.communicate(timeout=60)[0]
        assert process.returncode == 0, out
    assert [said(grounds, "--wait", number)["state"] for number in ("t0001", "t0002")] == ["done", "done"]
    wait_until(lambda: not is_held(grounds.root / ".git"))
    assert "night t on branch" in (grounds.root / "experiments" / "queue" / "drain.log").read_text()


# ---- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_ends_the_waiting_and_not_the_try_which_goes_on_after_a_kill(grounds):
    edit(grounds, unigram(SHARPNESS=0.9))
    waiting = grounds.start("try", "-m", "sharper", "--json", *QUICK[:2], "--budget-s", "1", *QUICK[4:])
    wait_until(training(grounds, "t", 1), 60)
    waiting.send_signal(signal.SIGINT)
    out = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 130, out
    facts = json.loads(out[out.index("{") :])
    assert (facts["state"], facts["go_on_with"]) == ("unfinished", "nightshift try --wait t0001")
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if "--drain" in (process.info["cmdline"] or []) and process.info["cwd"] == str(grounds.root):
            process.kill()
    wait_until(lambda: not is_held(grounds.root / ".git"))
    facts = said(grounds, "--wait", "t0001")
    assert (facts["state"], facts["status"], facts["attempt"]) == ("done", "keep", 1)
    assert [run.ending for run in grounds.attempts("t")[1].runs] == [Ending.LOST, Ending.FINISHED]
    assert len(grounds.attempts("t")) == 2
