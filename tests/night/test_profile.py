"""Each phase gets its own time, and a script without the measured functions is told so."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from json_page import faults
from nights import PROJECT, SCRIPTS, Grounds, make_repository

pytestmark = pytest.mark.usefixtures("own_cache")


def bigram(old: str, new: str) -> str:
    """Return the script with all measured functions, with a piece of its text replaced."""
    text = (SCRIPTS / "bigram.py").read_text()
    assert old in text
    return text.replace(old, new)


def profile(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return Grounds(make_repository(tmp_path / "user", script)).nightshift("profile", *options)


def profiled(tmp_path: Path, script: str, steps: str) -> tuple[str, dict[str, float]]:
    """Return what is said, and the milliseconds of each phase."""
    done = profile(tmp_path, script, "--steps", steps, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert faults("profile", facts) == []
    return done.stderr, {phase["name"]: phase["ms"] for phase in facts["phases"]}  # the table makes room


def test_every_phase_has_its_row_and_together_they_are_the_step(tmp_path):
    said, phases = profiled(tmp_path, bigram("SLEEP_S = 0.0", "SLEEP_S = 0.02"), "5")
    assert [*phases] == ["waiting for a batch", "forward + backward", "optimizer", "Python"]
    assert all(name in said for name in (*phases, "a step"))
    assert all(ms > 0 for ms in phases.values())
    assert phases["optimizer"] >= 20


def test_the_script_is_measured_with_the_budget_of_a_run_by_which_it_may_choose_what_it_computes(tmp_path):
    read = "options = parser.parse_args()\n"
    script = bigram(read, f"{read}    assert options.budget_s == 300\n")
    assert profile(tmp_path, script, "--steps", "2").returncode == 0


def test_the_projects_own_script_has_every_measured_function(tmp_path):
    script = re.sub(r"(?m)^(DEPTH|BATCH_ROWS) = \S.*$", r"\1 = 1", (PROJECT / "train_mlx.py").read_text())
    assert len(profiled(tmp_path, script, "2")[1]) == 4


def test_a_crash_is_told_with_its_exit_code_and_its_last_lines(tmp_path):
    done = profile(tmp_path, (SCRIPTS / "diverges.py").read_text())
    assert done.returncode == 1
    assert "train_mlx.py crashed with exit code 3; its last lines:\nloss is nan at step 17" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "1"], "--steps 1 leaves nothing between two steps to measure; take 2 or more"),
        ([], "train_mlx.py calls no MuonAdamW.update"),
    ],
)
def test_misuse_is_one_sentence_with_its_remedy(tmp_path, options, words):
    done = profile(tmp_path, bigram("MuonAdamW", "Sgd"), *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
