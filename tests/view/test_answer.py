"""--json answers with one object however a command ends, in the place where its answer was to be."""

import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from commands import nothing_yet, refused, training, wait_until
from judged import findings, scored_attempt
from nights import command, environment, unigram

from agent.cli import main as command_line
from agent.cli.training import answer_of_dawn
from agent.cli.trying import TRY
from agent.experiment import Status
from agent.view.answer import STDOUT, Answer

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
QUICK = ("--sandbox", "off", "--judge", "greedy", "--budget-s", "0.05")


def only_answer(done: subprocess.CompletedProcess[str], file: Path | None = None) -> dict[str, object]:
    """All of stdout, or of the file, is one object, which knows the exit code and what stderr says."""
    facts = json.loads(done.stdout if file is None else file.read_text())
    assert list(facts)[:3] == ["schema_version", "error", "exit_code"]
    assert facts["exit_code"] == done.returncode
    assert str(facts["error"]).splitlines()[0] in done.stderr or done.returncode == 130
    return facts


@pytest.mark.parametrize(
    ("words", "to"),
    [
        ("try --json -m x", STDOUT),
        ("try -m x --js", STDOUT),
        ("try -m x", None),
        ("confirm --json found.json", Path("found.json")),
        ("confirm --json=found.json --runs 1", Path("found.json")),
        ("confirm --json -", STDOUT),
        ("confirm --json --runs", STDOUT),
        ("confirm --runs 1 --json", STDOUT),
        ("profile --json", STDOUT),
        ("doctor --json", STDOUT),
        ("status --json", STDOUT),
        ("run --json", STDOUT),
        ("run --js", None),
        ("rnu --json", STDOUT),
        ("note -- --json", None),
        ("", None),
    ],
)
def test_where_an_answer_goes_is_read_from_bare_words(words, to):
    answers = {one.name: one.answers for one in command_line.commands_for(()) if one.answers is not None}
    assert Answer.asked_for(words.split(), answers).to == to


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-m", "x", "--judge", "blind"), "argument --judge: invalid choice: 'blind'"),
        (("-m", "x", "--no-such-option"), "unrecognized arguments: --no-such-option"),
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


@pytest.mark.parametrize(("words", "code"), [(("confirm",), 3), (("profile", "--script", "nowhere.py"), 2)])
def test_other_commands_write_it_where_their_answer_goes(grounds, tmp_path, words, code):
    file = tmp_path / "answer.json"
    file.write_text("of yesterday")
    facts = only_answer(grounds.nightshift(*words, "--json", str(file)), file)
    assert facts["exit_code"] == code
    assert only_answer(grounds.nightshift(*words, "--json", "-")) == facts
    only_answer(grounds.nightshift(*words, "--json", str(file), "--what"), file)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("doctor", "--json", "--what"), "unrecognized arguments: --what"),
        (("report", "--json"), "unrecognized arguments: --json"),
        (("--json",), "the following arguments are required: COMMAND"),
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
        ("facts", {}),
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
    for words in (("results", "--tag", "u"), ("status", "--tag", "u"), ("watch", "--tag", "u")):
        assert "night u" in refused(grounds.nightshift(*words))
    assert "no night is running in this repository" in nothing_yet(grounds.nightshift("watch", "--tag", "t"))
    assert "night t has no findings yet" in nothing_yet(grounds.nightshift("confirm", "--show"))
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as database:
        database.execute("DELETE FROM decisions")  # as while the baseline is measured
        database.execute("UPDATE attempts SET settled = 0")
        database.commit()
    (grounds.root / "results.tsv").unlink()
    assert "no results yet; see: " in nothing_yet(grounds.nightshift("results", "--tag", "t"))
    assert nothing_yet(grounds.nightshift("facts")).endswith("go on with: nightshift run --tag t")
    with closing(sqlite3.connect(grounds.folder("t") / "journal.sqlite")) as database:
        database.execute("UPDATE runs SET score = json_set(score, '$.val_bpb', NULL)")
        database.commit()
    assert "no scored attempt to plot" in nothing_yet(grounds.nightshift("plot", "--out", "progress.svg"))


def test_a_success_says_so_and_holds_only_what_json_and_utf_8_have(capsys):
    Answer(STDOUT).give({"score": float("nan"), "name": "b\udcffd.py", "status": Status.KEEP, "exit_code": 0})
    told = json.loads(capsys.readouterr().out)
    head = {"schema_version": 1, "error": None, "exit_code": 0}
    assert told == head | {"score": None, "name": "b\\udcffd.py", "status": "keep"}


def test_a_file_that_cannot_be_written_is_found_at_once(grounds, tmp_path):
    done = grounds.nightshift("confirm", "--json", str(tmp_path / "nowhere" / "found.json"))
    assert f"--json {tmp_path}/nowhere/found.json cannot be written; name a file in a folder that exists" in done.stderr


def test_a_crash_of_what_is_profiled_is_an_answer(grounds):
    facts = only_answer(grounds.nightshift("profile", "--steps", "2", "--json", "-"))
    assert facts["exit_code"] == 1
    assert "its last lines:" in str(facts["error"])
    assert "unrecognized arguments: --max-steps 2" in str(facts["error"])  # this script knows no such option


def test_a_night_without_anything_to_confirm_is_an_answer(grounds):
    grounds.try_scripts("t", [])
    facts = only_answer(grounds.nightshift("confirm", "--json", "-"))
    assert facts["error"] == "night t has kept no edit, so there is nothing to confirm; see: nightshift results"


def test_what_nobody_foresaw_is_an_answer_too(monkeypatch, capsys):
    def breaks(options: object) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(command_line, "commands_for", lambda words: [replace(TRY, act=breaks)])
    with pytest.raises(ZeroDivisionError):
        command_line.main(["try", "--json", "-m", "x"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["exit_code"] == 1  # Python's own, for an exception
    assert facts["error"].startswith("ZeroDivisionError: division by zero; this is a defect, please report it")


def test_ctrl_c_in_a_command_is_an_answer_too(monkeypatch, capsys):
    def is_interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "commands_for", lambda words: [replace(TRY, act=is_interrupted)])
    assert command_line.main(["try", "--json", "-m", "x"]) == 130
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema_version"], facts["exit_code"], facts["state"]) == (1, 130, "unfinished")


def test_an_interrupted_try_says_how_it_goes_on(grounds):
    (grounds.root / "better.py").write_text(unigram(SHARPNESS=0.9))
    words = ("try", "-m", "sharper", "--edit", "better.py", "--json", "--tag", "t", *QUICK[:-1], "0.6")
    going = subprocess.Popen(command(*words), cwd=grounds.root, env=environment(), **PIPES)
    wait_until(training(grounds, "t"))
    for _ in range(2):
        going.send_signal(signal.SIGINT)
        wait_until(lambda: (grounds.folder("t") / "stop").exists())
    out, err = going.communicate(timeout=60)
    facts = json.loads(out)
    assert (going.returncode, facts["exit_code"], facts["state"]) == (130, 130, "unfinished"), err
    assert (facts["tag"], facts["attempt"]) == ("t", None)
    assert "nightshift try -m sharper --json --edit better.py --budget-s 0.6 --tag t --judge" in facts["go_on_with"]


def test_a_dawn_that_was_ended_early_answers_with_what_it_has_found(capsys):
    history = [scored_attempt(0, 1.0, status=Status.KEEP), scored_attempt(1, 0.9, parent=0, status=Status.KEEP)]
    found = findings(history)
    code = answer_of_dawn(Answer(STDOUT), "t", found, "nightshift confirm --tag t")
    facts = json.loads(capsys.readouterr().out)
    assert (code, facts["exit_code"], facts["state"], facts["champion"]) == (130, 130, "unfinished", 1)
    assert facts["go_on_with"] == "nightshift confirm --tag t"
