"""The proofs run by one command: each program is there, takes its options, and a goal can be missed."""

import sys

import pytest
from nights import PROJECT, options_of

sys.path.insert(0, str(PROJECT / "benchmarks"))

import first_look
import killed_commands
import proofs
from proofs import PROOFS, Goal, Outcome, Proof


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.name)
def test_each_proof_is_a_program_of_the_folder(proof):
    assert proof.path.is_file()


def test_a_goal_is_missed_outside_of_its_bounds_and_where_there_is_no_figure():
    share, bias = Goal("share", "share", least=0.6, form=".0%"), Goal("bias", "bias", -0.2, 0.2, ".1f")
    assert [share.is_met(figure) for figure in (0.59, 0.6, None, "0.7")] == [False, True, False, False]
    assert [bias.is_met(figure) for figure in (-0.3, 0.0, 0.3)] == [False, True, False]
    assert (share.bounds, bias.bounds) == ("at least 60%", "from -0.2 to 0.2")


def test_a_proof_falls_short_by_its_exit_code_or_a_goal_and_a_quick_one_by_its_exit_code_alone():
    proof = Proof("cheats", "", goals=(Goal("lost", "lost", least=0, most=0),))
    for code, lost, checked, verdict in (
        (0, 0, True, "holds"),
        (0, 1, True, "FALLS SHORT"),
        (1, 0, True, "FALLS SHORT"),
        (0, 1, False, "ran"),
        (1, 0, False, "FALLS SHORT"),
    ):
        outcome = Outcome(proof, code, 60.0, {"lost": lost}, checked)
        assert outcome.row()[-1] == verdict
        assert outcome.holds == (verdict != "FALLS SHORT")


@pytest.mark.parametrize("case", killed_commands.CASES, ids=lambda case: case.name)
def test_each_command_that_is_killed_is_one_that_the_command_line_takes(case):
    if case.words[0] != "python":
        assert options_of(*case.words) is not None


def test_the_first_look_is_the_command_of_the_readme():
    assert first_look.command_of_readme().startswith("pip install uv && uv run nightshift run --experiments ")


def test_one_proof_can_be_run_alone_in_its_short_form(tmp_path, capfd):
    assert proofs.main(["--quick", "--only", "drift", "--json", str(tmp_path / "found.json")]) == 0
    assert "| drift | " in capfd.readouterr().out
    assert '"drift_holds": 1' in (tmp_path / "found.json").read_text()
