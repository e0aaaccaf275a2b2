"""Each phase gets its own time, and a script without the measured functions is told so."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from json_page import faults
from nights import PROJECT, SCRIPTS, Grounds, make_repository

pytestmark = pytest.mark.usefixtures("own_cache")


def profile(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return Grounds(make_repository(tmp_path / "user", script)).nightshift("profile", *options)


@pytest.mark.slow
def test_every_phase_of_the_projects_own_script_has_its_row_with_the_budget_of_a_run(tmp_path):
    """By the budget, a script may choose what it computes."""
    script = re.sub(r"(?m)^(DEPTH|BATCH_ROWS) = \S.*$", r"\1 = 1", (PROJECT / "train_mlx.py").read_text())
    for before, after in (
        ("        params, state = dict(params), dict(state)\n", "        time.sleep(0.2)\n"),  # a slow optimizer
        ("    args = parser.parse_args(argv)\n", "    assert args.budget_s == 300\n"),
    ):
        assert script.count(before) == 1
        script = script.replace(before, before + after)
    done = profile(tmp_path, script, "--steps", "3", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert faults("profile", facts) == []
    phases = {phase["name"]: phase["ms"] for phase in facts["phases"]}
    assert [*phases] == ["waiting for a batch", "forward + backward", "optimizer", "Python"]
    assert all(name in done.stderr for name in (*phases, "a step"))  # the table makes room
    assert all(ms > 0 for ms in phases.values())
    assert phases["optimizer"] >= 200


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
    done = profile(tmp_path, (SCRIPTS / "bigram.py").read_text().replace("MuonAdamW", "Sgd"), *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
