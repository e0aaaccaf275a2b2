"""Each phase gets its own time, and a script without the measured functions still gets a table."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from json_page import faults
from nights import PROJECT, SCRIPTS, Grounds, make_repository

pytestmark = pytest.mark.usefixtures("own_cache")

PHASES = ("data_s", "forward_backward_s", "optimizer_s")
NO_GRADIENTS = {"mx.value_and_grad(loss_of)(table, rows)": "loss_of(table, rows), mx.grad(loss_of)(table, rows)"}


def bigram(changes: dict[str, str]) -> str:
    """Return the script with all measured functions, with pieces of its text replaced."""
    text = (SCRIPTS / "bigram.py").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def profile(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return Grounds(make_repository(tmp_path / "user", script)).nightshift("profile", *options)


def profiled(tmp_path: Path, changes: dict[str, str]) -> tuple[str, dict[str, float | None]]:
    done = profile(tmp_path, bigram(changes), "--steps", "5", "--json")
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)  # the table makes room


def test_every_phase_has_its_row_and_together_they_are_the_step(tmp_path):
    said, found = profiled(tmp_path, {"SLEEP_S = 0.0": "SLEEP_S = 0.02"})
    for row in ("waiting for a batch", "forward + backward", "optimizer", "Python", "mean of"):
        assert row in said
    assert sum(found[phase] for phase in (*PHASES, "python_s")) == pytest.approx(found["step_s"])
    assert all(found[phase] > 0 for phase in PHASES)
    assert found["optimizer_s"] >= 0.02


def test_a_phase_without_its_function_is_counted_as_python(tmp_path):
    _, found = profiled(tmp_path, NO_GRADIENTS)
    assert found["forward_backward_s"] is None
    assert found["python_s"] > 0


def test_the_projects_own_script_has_every_measured_function(tmp_path):
    script = re.sub(r"(?m)^(DEPTH|BATCH_ROWS) = \S.*$", r"\1 = 1", (PROJECT / "train_mlx.py").read_text())
    done = profile(tmp_path, script, "--steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert faults("profile", facts) == []
    assert [name for name, value in facts.items() if value is None] == ["error"]


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
    done = profile(tmp_path, bigram({"MuonAdamW": "Sgd"}), *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
