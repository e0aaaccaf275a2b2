"""`nightshift try`: one edit of a person's own, from the working tree to the verdict."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import refused, training, wait_until
from json_page import faults
from nights import Grounds, make_repository, unigram

from agent.experiment import Ending, Night
from agent.night.lock import only_night
from agent.night.opening import committed
from agent.records.journal import Journal
from agent.records.place import Place, read_script

QUICK = ("--sandbox", "off", "--judge", "greedy")
COMMITTED = unigram()


def edit(grounds: Grounds, script: str) -> None:
    (grounds.root / "train_mlx.py").write_text(script)


def night_of(grounds: Grounds) -> Night:
    with Journal.read(grounds.folder("t") / "journal.sqlite") as journal:
        return journal.night()


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Iterator[Grounds]:
    """A repository in which two edits have been tried, one of them kept."""
    grounds = Grounds(make_repository(tmp_path_factory.mktemp("try") / "user", COMMITTED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_DATA", str(tiny_data))
        yield grounds


# The tests of this part follow one another in one repository, as a person's afternoon does.


def test_the_first_try_is_measured_against_the_committed_script(tried):
    edit(tried, unigram(SHARPNESS=0.9))
    done = tried.nightshift("try", "-m", "sharper\nThe counts are large.", "--budget-s", "0.05", "--tag", "t", *QUICK)
    assert done.returncode == 0, done.stderr
    zero, one = tried.attempts("t")
    assert zero.proposal.script == COMMITTED
    assert (one.proposal.title, one.proposal.hypothesis, one.proposal.source) == (
        "sharper",
        "The counts are large.",
        "queue: 0001",
    )
    assert (one.parent, one.status) == (0, "keep")
    assert tried.git("diff", "--stat").splitlines()[-1].split()[:3] == ["1", "file", "changed,"]  # HEAD is as it was
    verdict = done.stdout.splitlines()[-4:]
    assert re.fullmatch(r"keep: 0\.\d{6} below the incumbent", verdict[0])
    assert verdict[1] == f"best so far: #1 sharper, val_bpb {one.val_bpb:.6f}"
    assert verdict[2] == "next: edit on from here: attempt 1 is the best script now"
    assert verdict[3] == "more: nightshift show t:1, nightshift results"


def test_a_worse_edit_is_discarded_and_the_way_back_is_told(tried):
    edit(tried, unigram(SHARPNESS=0.2))
    done = tried.nightshift("try", "-m", "blunter")
    two = tried.attempts("t")[2]  # the night that is here goes on without being named
    assert (two.parent, two.status, len(two.runs)) == (1, "discard", 1)  # judged as the first was, and boxed so
    assert night_of(tried).terms.sandbox == "off"
    assert done.stdout.splitlines()[-4].startswith("discard: 0.")
    assert done.stdout.splitlines()[-2].endswith("; go back with: nightshift take t:1")
    tried.git("restore", "-s", "refs/experiments/t/0001", "train_mlx.py")  # where the branch may have stayed behind
    assert (tried.root / "train_mlx.py").read_text() == unigram(SHARPNESS=0.9)


def test_a_crash_says_why_as_json_alone_on_stdout(tried, tmp_path):
    (tmp_path / "other.py").write_text(
        unigram(SHARPNESS=0.9).replace("data = prepare", "assert False, 'no data'\n    data = prepare")
    )
    done = tried.nightshift("try", "-m", "no data", "--json", "--edit", str(tmp_path / "other.py"), *QUICK)
    facts = json.loads(done.stdout)
    assert faults("try", facts) == []
    assert (facts["tag"], facts["attempt"], facts["parent"], facts["status"]) == ("t", 3, 1, "crash")
    assert facts["reason"] == "exit code 1: AssertionError: no data"
    assert facts["val_bpb"] is None
    assert facts["best"]["number"] == 1
    assert facts["best"]["val_bpb"] == tried.attempts("t")[1].val_bpb
    assert facts["commit"] == tried.git("rev-parse", "refs/experiments/t/0003")
    assert facts["go_back_with"] == "git restore -s refs/experiments/t/0001 train_mlx.py"
    assert (done.returncode, tried.attempts("t")[3].dry_run) == (0, None)  # a dry run is for budgets above a minute


def test_a_script_that_was_tried_is_not_tried_again(tried):
    edit(tried, unigram(SHARPNESS=0.2) + "\n# with a comment\n")
    assert "the script of attempt 2 again; it has to be a new one" in refused(tried.nightshift("try", "-m", "again"))
    edit(tried, COMMITTED)
    assert "is as it was committed; edit it first" in refused(tried.nightshift("try", "-m", "back"))


def test_words_that_a_terminal_would_obey_are_made_harmless(tried):
    edit(tried, unigram(SHARPNESS=0.3))
    done = tried.nightshift("try", "-m", "blunt\x1b[2J\tit is\n\nwhy\x07", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert tried.attempts("t")[4].proposal.title == "blunt\\x1b[2J it is"


def test_another_budget_wants_another_night(tried):
    edit(tried, unigram(SHARPNESS=0.31))
    told = refused(tried.nightshift("try", "-m", "longer", "--budget-s", "1"))
    assert told == ("night t has --budget-s 0.05, not 1; leave the option out to resume it, or choose another --tag")
    told = refused(tried.nightshift("try", "-m", "longer", "--judge", "balanced"))
    assert told.startswith("night t has --judge greedy, not --judge balanced; leave the option out to resume it")
    edit(tried, unigram(SHARPNESS=0.2))  # tried before, which is no matter where nothing could be tried
    assert refused(tried.nightshift("try", "-m", "again", "--judge", "balanced")) == told


def test_while_a_night_runs_a_try_waits_for_its_turn(tried):
    edit(tried, unigram(SHARPNESS=0.32))
    with only_night(Path(tried.git("rev-parse", "--absolute-git-dir"))) as tell:
        tell("t", tried.folder("t"))
        told = json.loads(tried.nightshift("try", "-m", "meanwhile", "--start", "--json").stdout)
        assert (told["state"], told["in_line"]) == ("waiting", 0)
        wait = ("try", "--wait", told["id"], "--json")
        assert json.loads(tried.nightshift(*wait, "--for", "0.3").stdout)["state"] == "waiting"
        assert len(tried.attempts("t")) == 5
    assert json.loads(tried.nightshift(*wait).stdout)["attempt"] == 5


def test_the_ledger_has_a_row_of_each(tried):
    assert [row["status"] for row in tried.rows()] == ["keep", "keep", "discard", "crash", *["discard"] * 2]
    assert [row["source"] for row in tried.rows()] == ["you", *[f"queue: {number:04d}" for number in range(1, 6)]]


# ---- what is refused before a night is opened ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "message", "sentence"),
    [
        (COMMITTED, "nothing", "train_mlx.py is as it was committed; edit it first, or name another file with --edit"),
        (COMMITTED + "\n# words\n", "words", "train_mlx.py is as it was committed"),
        ("def main(:\n", "broken", "train_mlx.py line 1 does not parse"),
        ("x = 1\n", "empty", "train_mlx.py breaks the contract: define main()"),
        (unigram(SHARPNESS=0.9), " \n ", "--message is empty; say what is tried and why"),
    ],
)
@pytest.mark.parametrize("tag", [(), ("--tag", "t")])
def test_a_slip_leaves_no_night_behind(grounds, script, message, sentence, tag):
    edit(grounds, script)
    assert sentence in refused(grounds.nightshift("try", "-m", message, *tag))
    assert not (grounds.root / "experiments").exists()
    assert grounds.git("for-each-ref", "refs/experiments", "refs/heads/experiments") == ""


def test_a_script_that_was_never_committed_has_no_baseline(grounds):
    (grounds.root / "new.py").write_text(COMMITTED)
    told = refused(grounds.nightshift("try", "-m", "new", "--script", "new.py"))
    assert told.startswith("new.py is not committed; run: git add new.py && git commit -m start")


def test_a_slip_in_another_file_is_told_of_that_file(grounds, tmp_path):
    (tmp_path / "mine.py").write_text("def main(:\n")
    told = refused(grounds.nightshift("try", "-m", "mine", "--edit", str(tmp_path / "mine.py")))
    assert told.startswith(f"{tmp_path}/mine.py line 1 does not parse")


# ---- interruptions ---------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_waiting_and_not_the_try(grounds):
    edit(grounds, unigram(SHARPNESS=0.9))
    going = grounds.start("try", "-m", "sharper", *QUICK, "--tag", "t", "--budget-s", "0.6")
    wait_until(training(grounds, "t", 1))
    going.send_signal(signal.SIGINT)
    said = going.communicate(timeout=60)[0]
    assert going.returncode == 130, said
    done = grounds.nightshift("try", "--wait", "t0001")
    assert done.returncode == 0, done.stderr
    assert [run.ending for run in grounds.attempts("t")[1].runs] == [Ending.FINISHED]
    assert done.stdout.splitlines()[-4].startswith("keep: ")
    assert len(grounds.attempts("t")) == 2


def test_a_byte_order_mark_makes_no_difference(grounds):
    script = grounds.root / "train_mlx.py"
    script.write_bytes(b"\xef\xbb\xbf" + script.read_bytes())
    grounds.git("commit", "-qam", "as some editors save it")
    assert committed(Place.of(script)) == read_script(Place.of(script)) == unigram()
