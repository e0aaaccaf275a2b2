"""docs/json.md and the answers of --json say the same: each key of one stands in the other, with its type."""

import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from json_page import HEAD, PAGE, faults, keys_of, named, tables
from judged import findings
from nights import Grounds, unigram
from queued import write_idea

from agent.cli.answer import SCHEMA_VERSION, Answer
from agent.cli.main import COMMANDS, command_named
from agent.experiment import Dawn
from agent.records.journal import Journal

BETTER = unigram(SHARPNESS=0.9)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, trained_night: Path) -> Grounds:
    """A night of four attempts, the baseline, two gains and a crash, and a dawn that has not run anything yet."""
    found = Grounds(Path(shutil.copytree(trained_night, tmp_path_factory.mktemp("json") / "user")))
    write_idea(found.root / "ideas", "sharper", BETTER, BETTER.replace("SHARPNESS = 0.9", "SHARPNESS = 0.95"))
    (found.root / "idea.py").write_text(unigram(SHARPNESS=0.8))
    with Journal.resume(found.folder("t") / "journal.sqlite") as journal:
        dawn = dataclasses.asdict(findings(journal.attempts()))
        journal.put_dawn(Dawn(1, 2, 4, "2026-01-02T05:00:00Z", None, dawn))
    return found


def told(night: Grounds, *words: str) -> dict[str, object]:
    done = night.nightshift(*words, "--json")
    facts = json.loads(done.stdout)
    assert isinstance(facts, dict)
    assert (facts["error"], facts["exit_code"], done.returncode) == (None, 0, 0), done.stderr
    assert list(facts)[:3] == list(keys_of(HEAD))
    assert facts["schema_version"] == SCHEMA_VERSION
    return facts


@pytest.mark.parametrize(
    "words",
    [
        "confirm --show", "status", "nights", "results", "results --all", "show 0", "show 1", "show 3",
        "show", "show t:best", "show 1 --log", "show 1 --diff", "show best --diff",
        "compare 0 1", "compare 0 3", "compare 0 1 --diff",
        "take 1", "take best", "best", "note deeper", "submit idea.py -m wider", "ideas", "ideas sharper",
        "prompt", "prompt --facts",
    ],
)  # fmt: skip
def test_an_answer_has_the_keys_and_types_of_the_page(night, words):
    command, *rest = words.split()
    section = " ".join([command, *(word for word in rest if word in ("--log", "--diff", "--facts"))])
    assert faults(section, told(night, command, *rest)) == []


def test_the_page_is_written_from_the_records():
    said = subprocess.run(
        [sys.executable, "-c", "import write_json_page; print(write_json_page.page(), end='')"],
        cwd=PAGE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == PAGE.read_text(), "write it again with: python docs/write_json_page.py"


def test_every_command_that_answers_has_a_section_and_every_object_is_part_of_an_answer():
    sections = set(tables())
    assert {name for name in COMMANDS if inspect.signature(command_named(name)).return_annotation is Answer} <= sections
    links = {section for keys in tables().values() for kind in keys.values() for section in _sections_in(kind)}
    objects = re.findall(r"(?m)^### (.+)$", PAGE.read_text())
    assert set(objects) <= links <= sections
    assert f"| `schema_version` | integer | {SCHEMA_VERSION}: " in PAGE.read_text()


def _sections_in(kind: str) -> set[str]:
    return {section for part in re.findall(r"\[[^\]]+\]\([^)]+\)", kind) if (section := named(part))}


def test_a_missing_key_a_new_one_and_a_wrong_type_are_noticed():
    facts = {"schema_version": 1, "error": None, "exit_code": 0, "ready": True, "checks": []}
    check = {"name": "mlx", "ok": 1, "detail": "MLX", "remedy": None, "essential": True, "measured": {}}
    assert faults("doctor", facts) == []
    assert faults("doctor", facts | {"new": 1}) == ["doctor.new is not on the page"]
    assert faults("doctor", {name: facts[name] for name in list(facts)[:-1]}) == ["doctor.checks is on the page only"]
    assert faults("doctor", facts | {"checks": [check]}) == ["doctor.checks.0.ok is 1, no boolean"]


# ---- what the answers say --------------------------------------------------------------------------------------------


def test_rows_have_numbers_for_numbers_and_null_for_empty_cells(night):
    rows = told(night, "results")["rows"]
    assert isinstance(rows, list)
    first, _, _, crash = rows
    assert (first["attempt"], first["seeds"], first["parent"], first["gain_bpb"]) == (
        0,
        1,
        night.git("rev-parse", "--short=7", "HEAD"),
        None,
    )
    assert first["val_bpb"] == pytest.approx(night.attempts("t")[0].val_bpb, abs=1e-6)
    assert (crash["status"], crash["val_bpb"], crash["attempt"]) == ("crash", None, 3)


def test_a_crash_shows_its_traceback_and_where_its_log_lies(night):
    facts = told(night, "show", "3")
    assert "ValueError: no such width" in str(facts["traceback"])
    log = Path(str(facts["log"]))
    assert log == night.folder("t") / "runs" / "0003" / "seed0" / "log.txt"
    assert "ValueError: no such width" in log.read_text()
    assert told(night, "show", "1")["traceback"] is None
    assert (told(night, "show", "best")["attempt"]["number"], told(night, "show")["is_incumbent"]) == (2, True)


def test_an_edit_names_its_dials(night):
    facts = told(night, "show", "best", "--diff")
    assert facts["dials"] == {"SHARPNESS": [0.7, 0.9]}
    assert "\n+SHARPNESS = 0.9" in str(facts["diff"])
    assert told(night, "show", "0", "--diff")["dials"] == {}


# ---- the log of an attempt -------------------------------------------------------------------------------------------


def test_a_log_is_that_of_the_training_bounded_and_harmless(night):
    folder = night.folder("t") / "runs" / "0001" / "seed0"
    (folder / "log.txt").write_bytes(b"first\nred \x1b[31m\0\n" + b"x" * 1000 + b"\n" + b"last\n")
    folder.with_name("seed0.score").mkdir(exist_ok=True)
    (folder.with_name("seed0.score") / "log.txt").write_text("text of the validation\n")
    lines = night.nightshift("show", "1", "--log").stdout.splitlines()
    assert (lines[0], lines[1], len(lines[2]), lines[3]) == ("first", "red \\x1b[31m", 300, "last")
    assert night.nightshift("show", "1", "--log", "--lines", "1", "--seed", "0").stdout == "last\n"
    assert told(night, "show", "1", "--log")["log"] == str(folder / "log.txt")


def test_a_log_that_is_gone_says_so(night):
    log = night.folder("t") / "runs" / "0003" / "seed0" / "log.txt"
    kept = log.read_bytes()
    log.unlink()
    said = night.nightshift("show", "3", "--log").stdout.splitlines()
    assert said[0] == "the log itself is gone; its last lines, as the journal keeps them:"
    assert said[-1] == "ValueError: no such width"
    facts = told(night, "show", "3", "--log")
    assert facts["log"] is None
    assert "ValueError: no such width" in str(facts["text"])
    log.write_bytes(kept)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("show worst", "'worst' is no attempt; give its number, best or confirmed"),
        ("show 9", "night t has no attempt 9; there are: 0 to 3"),
        ("show 1 --seed 0", "--seed chooses a log; add --log"),
        ("show 1 --log --seed 5", "attempt 1 of night t has no run with seed 5; there are: 0"),
        ("show none:1 --diff", "no night none is known here; there are: t"),
        ("results none", "results.tsv has no night none"),
        ("status none", "night none has no journal here; there are: t"),
        ("ideas nothing", "there is no idea nothing"),
    ],
)
def test_a_refusal_is_an_answer(night, words, error):
    done = night.nightshift(*words.split(), "--json")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["exit_code"], facts["schema_version"]) == (2, 2, SCHEMA_VERSION)
    assert facts["error"].startswith(error)
