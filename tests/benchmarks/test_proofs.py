"""The proofs run by one command: each program is there and takes its options, and a goal and a fault can be missed."""

import json
import sys

import pytest
from nights import PROJECT, git

sys.path.insert(0, str(PROJECT / "benchmarks"))

import first_look
import planted_faults
import proofs
from proofs import Goal, Outcome, Proof


def test_a_goal_is_missed_outside_of_its_bounds_and_where_there_is_no_figure():
    share, bias = Goal("share", "share", least=0.6, form=".0%"), Goal("bias", "bias", -0.2, 0.2, ".1f")
    assert [share.is_met(figure) for figure in (0.59, 0.6, None, "0.7")] == [False, True, False, False]
    assert [bias.is_met(figure) for figure in (-0.3, 0.0, 0.3)] == [False, True, False]
    assert (share.bounds, bias.bounds) == ("at least 60%", "-0.2 to 0.2")


def test_a_proof_falls_short_by_its_exit_code_or_a_goal_and_a_quick_one_has_no_goals():
    goal = Goal("lost", "lost", least=0, most=0)
    for code, lost, goals, verdict in (
        (0, 0, (goal,), "holds"),
        (0, 1, (goal,), "FALLS SHORT"),
        (1, 0, (goal,), "FALLS SHORT"),
        (0, 1, (), "ran"),
        (1, 0, (), "FALLS SHORT"),
    ):
        outcome = Outcome(Proof("cheats", "", goals), code, 60.0, {"lost": lost})
        assert outcome.row()[-1] == verdict
        assert outcome.holds == (verdict != "FALLS SHORT")


def test_the_first_look_is_the_command_of_the_readme():
    assert first_look.command_of_readme().startswith("pip install uv && uv run nightshift run --experiments ")


def test_one_proof_can_be_run_alone_in_its_short_form(tmp_path, capfd):
    assert proofs.main(["--quick", "--only", "drift", "--json", str(tmp_path / "found.json")]) == 0
    assert "| drift | " in capfd.readouterr().out
    assert '"drift_holds": 1' in (tmp_path / "found.json").read_text()


# ---- planted faults --------------------------------------------------------------------------------------------------


@pytest.mark.slow  # code that changes may move a fault's lines: then the fault is corrected
def test_each_planted_fault_can_still_be_planted():
    faults = planted_faults.read_faults(planted_faults.LIST)
    assert len(faults) == len({fault.name for fault in faults}) >= 50
    assert planted_faults.main(["--quick"]) == 0
    assert {fault.test for fault in faults if not (PROJECT / fault.test).is_file()} == set()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one module and its test."""
    for name, text in (
        ("agent/__init__.py", ""),
        ("agent/git.py", "def twice(number):\n    return 2 * number  # a fault goes here\n\n\nSPARE = 1\n"),
        ("tests/night/test_night.py", "def test_nothing():\n    pass\n"),
        ("tests/test_git.py", "from agent.git import twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n"),
    ):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    git(tmp_path / "tree", "init", "-q")
    monkeypatch.setattr(planted_faults.measure, "ROOT", tmp_path / "tree")
    return tmp_path / "tree"


def plant(monkeypatch, tmp_path, *pairs: tuple[str, str]) -> dict:
    listed, flat_file = tmp_path / "faults.txt", tmp_path / "flat.json"
    places = "agent/git.py, found by tests/test_git.py"
    blocks = [f"fault {at}: Twice.\n{places}\n- {old}\n+ {new}\n" for at, (old, new) in enumerate(pairs)]
    listed.write_text("\n".join(["# a heading\n", *blocks]))
    monkeypatch.setattr(planted_faults, "LIST", listed)
    code = planted_faults.main(["--json", str(flat_file)])
    return {"code": code} | (json.loads(flat_file.read_text()) if flat_file.exists() else {})


@pytest.mark.slow
def test_a_fault_is_found_or_missed_and_the_tree_is_left_alone(tree, tmp_path, monkeypatch):
    flat = plant(monkeypatch, tmp_path, ("2 * number", "3 * number"), ("SPARE = 1", "SPARE = 2"))
    assert (flat["planted"], flat["found"], flat["missed"], flat["missed_names"]) == (2, 1, 1, "fault 1")
    assert (flat["fault_0_found"], flat["fault_1_found"], flat["code"]) == (1, 0, 1)
    assert flat["fault_0_by"] == "tests/test_git.py::test_twice"
    assert "2 * number" in (tree / "agent" / "git.py").read_text()


@pytest.mark.slow
def test_tests_that_fail_anyway_find_nothing(tree, tmp_path, monkeypatch, capsys):
    (tree / "tests" / "test_git.py").write_text("def test_nothing():\n    assert False\n")
    assert plant(monkeypatch, tmp_path, ("2 * number", "3 * number"))["code"] == 1
    assert "fails without any fault" in capsys.readouterr().err
