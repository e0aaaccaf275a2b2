"""--json answers with one object however a command ends, in the place where its answer was to be."""

import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest
from commands import nothing_yet, refused, training, wait_until
from judged import findings, scored_attempt
from nights import command, environment, unigram

from agent.cli import main as command_line
from agent.cli.answer import Answer
from agent.cli.run import answer_of_dawn
from agent.experiment import Status

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
QUICK = ("--sandbox", "off", "--judge", "greedy", "--budget-s", "0.05")


def only_answer(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """All of stdout is one object, which knows the exit code and what stderr says."""
    facts = json.loads(done.stdout)
    assert list(facts)[:3] == ["schema_version", "error", "exit_code"]
    assert facts["exit_code"] == done.returncode
    assert str(facts["error"]).splitlines()[0] in done.stderr
    return facts


@pytest.mark.parametrize(
    ("words", "left", "is_json"),
    [
        ("try --json -m x", "try -m x", True),
        ("try -m x", "try -m x", False),
        ("confirm --runs 1 --json", "confirm --runs 1", True),
        ("rnu --json", "rnu", True),
        ("note -- --json", "note -- --json", False),
        ("prepare --json", "prepare --json", False),
        ("", "", False),
    ],
)
def test_whether_an_answer_is_asked_for_is_read_from_bare_words(words, left, is_json):
    assert command_line.without_json(words.split()) == (tuple(left.split()), is_json)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-m", "x", "--judge", "blind"), 'Invalid value "blind" for --judge'),
        (("-m", "x", "--no-such-option"), "Unknown option: --no-such-option"),
        ((), "--message is empty; say what is tried and why"),
        (("-m", "x"), "train_mlx.py is as it was committed; edit it first"),
        (("-m", "x", "--edit", "nowhere.py"), "nowhere.py does not exist"),
        (("-m", "x", "--tag", "a b", "--edit", "better.py"), "'a b' is no tag"),
        (("-m", "x", "--edit", "better.py", "--confirm", "1"), "--confirm is for --judge greedy"),
    ],
)
def test_a_try_that_is_refused_says_so_as_json_and_opens_nothing(grounds, words, error):
    (grounds.root / "better.py").write_text(unigram(SHARPNESS=0.9))
    done = grounds.nightshift("try", "--json", *words)
    facts = only_answer(done)
    assert facts["exit_code"] == 2
    assert str(facts["error"]).startswith(error)
    assert not (grounds.root / "experiments").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("doctor", "--json", "--what"), "Unknown option: --what"),
        (("report", "--json"), "report has no --json"),
        (("rnu", "--json"), "there is no command 'rnu'; similar: nightshift run"),
    ],
)
def test_words_that_a_command_does_not_take_are_an_answer(grounds, words, error):
    facts = only_answer(grounds.nightshift(*words))
    assert facts["exit_code"] == 2
    assert str(facts["error"]).startswith(error)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("status", {}),
        ("results", {"tag": None, "rows": []}),
        ("results --all", {"tag": None, "rows": []}),
        ("nights", {"nights": []}),
        ("stop", {}),
        ("show best", {}),
        ("prompt --facts", {}),
        ("note deeper", {}),
    ],
)
def test_a_script_that_polls_tells_nothing_yet_from_a_wrong_command(grounds, words, known):
    """Exit code 3 is for what is not there so far, in words for people and for programs, and 2 for what never will."""
    told = nothing_yet(grounds.nightshift(*words.split()))
    assert re.match("no night has run here yet|no results yet|no night is running", told)
    facts = only_answer(grounds.nightshift(*words.split(), "--json"))
    assert (facts["exit_code"], {name: facts[name] for name in [*facts][3:]}) == (3, known)
    assert only_answer(grounds.nightshift(*words.split(), "--what", "--json"))["exit_code"] == 2


def test_a_tag_that_no_night_has_is_a_wrong_command_and_a_night_without_results_is_not(grounds):
    grounds.try_scripts("t", [])
    for words in (("results", "u"), ("status", "u"), ("status", "u", "--follow")):
        assert "night u" in refused(grounds.nightshift(*words))
    assert "no night is running in this repository" in nothing_yet(grounds.nightshift("status", "t", "--follow"))
    assert "night t has no findings yet" in nothing_yet(grounds.nightshift("confirm", "--show"))
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as database:
        database.execute("DELETE FROM decisions")  # as while the baseline is measured
        database.execute("UPDATE attempts SET settled = 0")
        database.commit()
    (grounds.root / "results.tsv").unlink()
    assert "no results yet; see: " in nothing_yet(grounds.nightshift("results", "t"))
    assert nothing_yet(grounds.nightshift("prompt", "--facts")).endswith("go on with: nightshift run --tag t")


def test_a_success_says_so_and_holds_only_what_json_and_utf_8_have():
    told = json.loads(Answer({"score": float("nan"), "name": "b\udcffd.py", "status": Status.KEEP}).as_json())
    head = {"schema_version": 1, "error": None, "exit_code": 0}
    assert told == head | {"score": None, "name": "b\\udcffd.py", "status": "keep"}


def test_a_crash_of_what_is_profiled_is_an_answer(grounds):
    facts = only_answer(grounds.nightshift("profile", "--steps", "2", "--json"))
    assert facts["exit_code"] == 1
    assert "its last lines:" in str(facts["error"])
    assert "unrecognized arguments: --max-steps 2" in str(facts["error"])  # this script knows no such option


def test_a_night_without_anything_to_confirm_is_an_answer(grounds):
    grounds.try_scripts("t", [])
    facts = only_answer(grounds.nightshift("confirm", "--json"))
    assert facts["error"] == "night t has kept no edit, so there is nothing to confirm; see: nightshift results"


def test_what_nobody_foresaw_is_an_answer_too(monkeypatch, capsys):
    def breaks() -> Answer:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(command_line, "command_named", lambda name: breaks)
    with pytest.raises(ZeroDivisionError):
        command_line.main(["try", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["exit_code"] == 1  # Python's own, for an exception
    assert facts["error"].startswith("ZeroDivisionError: division by zero; this is a defect, please report it")


def test_ctrl_c_in_a_command_is_an_answer_too(monkeypatch, capsys):
    def is_interrupted() -> Answer:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "command_named", lambda name: is_interrupted)
    assert command_line.main(["try", "--json"]) == 130
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema_version"], facts["exit_code"], facts["state"]) == (1, 130, "unfinished")
    assert facts["go_on_with"] == "nightshift try --json"


def test_an_interrupted_try_says_how_it_goes_on(grounds):
    (grounds.root / "better.py").write_text(unigram(SHARPNESS=0.9))
    words = ("try", "-m", "sharper", "--edit", "better.py", "--json", "--tag", "t", *QUICK[:-1], "0.6")
    going = subprocess.Popen(command(*words), cwd=grounds.root, env=environment(), **PIPES)
    wait_until(training(grounds, "t"))
    going.send_signal(signal.SIGINT)
    out, err = going.communicate(timeout=60)
    facts = json.loads(out)
    assert (going.returncode, facts["exit_code"], facts["state"]) == (130, 130, "unfinished"), err
    assert facts["go_on_with"] == "nightshift try --wait t0001"
    assert json.loads(grounds.nightshift("try", "--wait", "t0001", "--json").stdout)["attempt"] == 1


def test_a_dawn_that_was_ended_early_answers_with_what_it_has_found():
    history = [scored_attempt(0, 1.0, status=Status.KEEP), scored_attempt(1, 0.9, parent=0, status=Status.KEEP)]
    answer = answer_of_dawn("t", findings(history), "nightshift confirm t")
    facts = answer.as_facts()
    assert (answer.exit_code, facts["exit_code"], facts["state"], facts["findings"]["champion"]) == (
        130,
        130,
        "unfinished",
        1,
    )
    assert facts["go_on_with"] == "nightshift confirm t"
