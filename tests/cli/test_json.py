"""docs/json.md and the answers of --json say the same: each key of one stands in the other, with its type."""

import inspect
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import nothing_yet
from json_page import HEAD, PAGE, faults, tables
from judged import findings
from nights import Grounds, make_repository, unigram
from queued import write_idea

from agent.cli import main as command_line
from agent.cli.main import COMMANDS, command_named
from agent.findings import Confirmation
from agent.records.journal import Journal
from agent.view.answer import SCHEMA_VERSION, Answer

BETTER = unigram(SHARPNESS=0.9)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, trained_night: Path) -> Grounds:
    """A night of four attempts, the baseline, two gains and a crash, and a confirmation without a run yet."""
    night = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("json") / "user")))
    write_idea(night.root / "ideas", "sharper", BETTER, BETTER.replace("SHARPNESS = 0.9", "SHARPNESS = 0.95"))
    with Journal.resume(night.folder("t") / "journal.sqlite") as journal:
        confirmation = findings(journal.attempts())
        journal.put_confirmation(Confirmation(1, 2, 4, "2026-01-02T05:00:00Z", None, confirmation))
    return night


def answer_of(night: Grounds, *words: str) -> dict[str, Any]:
    done = night.nightshift(*words, "--json")
    facts = json.loads(done.stdout)
    assert isinstance(facts, dict)
    assert (facts["error"], facts["exit_code"], done.returncode) == (None, 0, 0), done.stderr
    assert list(facts)[:3] == list(tables()[HEAD])
    assert facts["schema_version"] == SCHEMA_VERSION
    return facts


@pytest.mark.parametrize(
    "words",
    [
        "confirm --show", "status", "nights", "results --all", "show 3", "show t:best", "show 1 --log",
        "show best --diff", "show 1 --script", "show 0 1", "show 0 1 --diff", "take best", "note deeper",
        "ideas sharper", "prompt", "prompt --facts",
    ],
)  # fmt: skip
def test_an_answer_has_the_keys_and_types_of_the_page(night, words):
    command, *rest = words.split()
    options = [word for word in rest if word in ("--log", "--diff", "--script", "--facts")]
    section = " ".join([command, *(["A B"] if rest[:2] == ["0", "1"] else []), *options])
    assert faults(section, answer_of(night, command, *rest)) == []


def test_the_page_is_written_from_the_records():
    said = subprocess.run(
        [sys.executable, "-c", "import write_json_page; print(write_json_page.page(), end='')"],
        cwd=PAGE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == PAGE.read_text(), "write it again with: python docs/write_json_page.py"


def test_every_command_that_answers_has_a_section():
    assert {name for name in COMMANDS if inspect.signature(command_named(name)).return_annotation is Answer} <= set(
        tables()
    )


# ---- what the answers say --------------------------------------------------------------------------------------------


def test_rows_have_numbers_for_numbers_and_null_for_empty_cells(night):
    first, _, _, crash = answer_of(night, "results")["rows"]
    assert (first["attempt"], first["seeds"], first["gain_bpb"]) == (0, 1, None)
    assert first["val_bpb"] == pytest.approx(night.attempts("t")[0].val_bpb, abs=1e-6)
    assert (crash["status"], crash["val_bpb"], crash["attempt"]) == ("crash", None, 3)


def test_an_attempt_shows_its_gain_its_weights_and_the_traceback_of_a_crash(night):
    facts, history = answer_of(night, "show", "3"), night.attempts("t")
    assert "ValueError: no such width" in str(facts["traceback"])
    assert facts["log"] == str(night.folder("t") / "runs" / "0003" / "seed0" / "log.txt")
    assert facts["weights"] is None
    best = answer_of(night, "show")
    assert (best["attempt"]["number"], best["is_best"], best["confirmation"]["best"]) == (2, True, 2)
    assert best["gain"]["mean_bpb"] == pytest.approx(history[0].val_bpb - history[2].val_bpb, abs=1e-6)


def test_an_edit_names_its_dials_and_a_script_is_whole(night):
    facts = answer_of(night, "show", "best", "--diff")
    assert facts["dials"] == {"SHARPNESS": [0.7, 0.9]}
    assert "\n+SHARPNESS = 0.9" in str(facts["diff"])
    assert answer_of(night, "show", "0", "--diff")["dials"] == {}
    assert night.nightshift("show", "--script").stdout == BETTER


def test_a_log_is_that_of_the_training_bounded_and_harmless(night):
    folder = night.folder("t") / "runs" / "0001" / "seed0"
    (folder / "log.txt").write_bytes(b"first\nred \x1b[31m\0\n" + b"x" * 1000 + b"\n" + b"last\n")
    folder.with_name("seed0.score").mkdir(exist_ok=True)
    (folder.with_name("seed0.score") / "log.txt").write_text("text of the validation\n")
    lines = night.nightshift("show", "1", "--log").stdout.splitlines()
    assert (lines[0], lines[1], len(lines[2]), lines[3]) == ("first", "red \\x1b[31m", 300, "last")


# ---- failures --------------------------------------------------------------------------------------------------------


def only_answer(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """All of stdout is one object, which knows the exit code and what stderr says."""
    facts = json.loads(done.stdout)
    assert list(facts)[:3] == ["schema_version", "error", "exit_code"]
    assert facts["exit_code"] == done.returncode
    assert str(facts["error"]).splitlines()[0] in done.stderr
    return facts


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("show worst", "'worst' is neither an attempt (a number, best or confirmed; "),
        ("show none:1 --diff", "no night none is here; known nights: t"),
        ("results none", "no night none is here; known nights: t"),
        ("status none", "no night none is here; known nights: t"),
        ("status t:1 --follow", "'t:1' is an attempt, and this command is about a whole night"),
        ("try --wait t0001 --start", "--start, --queue, --wait and --cancel exclude each other"),
        ("doctor --what", "Unknown option: --what"),
        ("report", "report has no --json"),
        ("rnu", "there is no command 'rnu'. Did you mean nightshift run?"),
    ],
)
def test_a_refusal_is_an_answer(night, words, error):
    facts = only_answer(night.nightshift(*words.split(), "--json"))
    assert facts["exit_code"] == 2
    assert str(facts["error"]).startswith(error)


def test_a_night_without_results_is_no_wrong_command(night, tmp_path):
    begun = Grounds(Path(shutil.copytree(night.root, tmp_path / "user")))
    with closing(sqlite3.connect(begun.folder("t") / "journal.sqlite")) as database:
        database.execute("DELETE FROM decisions")  # a night is like this while the baseline is measured
        database.execute("DELETE FROM confirmations")
        database.execute("UPDATE attempts SET settled = 0")
        database.commit()
    (begun.root / "results.tsv").unlink()
    assert "night t has not been confirmed yet" in nothing_yet(begun.nightshift("confirm", "--show"))
    assert "no results yet; see: " in nothing_yet(begun.nightshift("results", "t"))
    assert nothing_yet(begun.nightshift("prompt", "--facts")).endswith("go on with: nightshift run --tag t")
    kept_nothing = only_answer(begun.nightshift("confirm", "--json"))
    assert kept_nothing["error"] == "night t has kept no edit, so there is nothing to confirm; see: nightshift status t"


def test_where_no_night_has_run_lists_are_empty(tmp_path):
    repository, folder = Grounds(make_repository(tmp_path / "user", unigram())), Grounds(tmp_path)
    for grounds in (repository, folder):
        for command, key in (("results", "rows"), ("nights", "nights")):
            facts = only_answer(grounds.nightshift(command, "--json"))
            assert (facts["exit_code"], facts[key]) == (3, [])


def test_what_nobody_foresaw_and_ctrl_c_are_answers_too(monkeypatch, capsys):
    def ends_with(error: BaseException) -> None:
        def act() -> Answer:
            raise error

        monkeypatch.setattr(command_line, "command_named", lambda name: act)

    ends_with(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        command_line.main(["try", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["exit_code"] == 1  # Python's own, for an exception
    assert facts["error"].startswith("ZeroDivisionError: division by zero; this is a defect, please report it")
    ends_with(KeyboardInterrupt())
    assert command_line.main(["try", "--json"]) == 130
    facts = json.loads(capsys.readouterr().out)
    assert (facts["exit_code"], facts["state"], facts["go_on_with"]) == (130, "unfinished", "nightshift try --json")
