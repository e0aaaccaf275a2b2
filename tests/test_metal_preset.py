"""What a Mac runs trains, is scored and agrees with float32, on the device of this machine."""

import json
import subprocess
import sys

import pytest
from nights import PROJECT, Grounds, environment, make_repository
from training import SCRIPT

from agent.experiment import Status
from agent.script.dials import set_dials

BRANCH = PROJECT / "tests" / "metal_branch.py"
BFLOAT16 = 0.02  # relative: sums of tens of products, of which each was rounded to 8 bits
FLOAT32 = 1e-5
OPTIMIZER = {"adamw", "nesterov", "cautious_step"}  # float32 on every device
LOSS_NATS = 0.05  # of a small model after some steps, the same in bfloat16 and in float32
SMALL = {"DEPTH": 2, "ASPECT_RATIO": 32, "HEAD_DIM": 32, "BATCH_ROWS": 2, "LOG_EVERY_S": 0.0}


def with_preset(preset: str, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(NIGHTSHIFT_PRESET=preset, **more)
    return subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def told() -> dict:
    """What the branch of a Mac has computed; not compiled, which takes a C++ compiler most of a minute."""
    process = with_preset("metal", BRANCH, MLX_DISABLE_COMPILE="1")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_preset_takes_a_macs_dials_and_no_kernel_of_ours(told):
    assert told["preset"] == {
        "dtype": "mlx.core.bfloat16", "compile": True, "batch_rows": 16, "depth": 6, "kernels": False,
    }  # fmt: skip


def test_every_public_operation_agrees_with_float32(told):
    errors = told["errors"]
    assert {name for name in errors if name not in OPTIMIZER and not 0 < errors[name] < BFLOAT16} == set()
    assert {name for name in OPTIMIZER if not 0 < errors[name] < FLOAT32} == set()


def test_the_step_of_the_preset_learns_as_in_float32(told):
    rounded, exact = told["losses"], told["losses_float32"]
    assert rounded != exact
    assert rounded[-1] < rounded[0] - 1
    assert max(abs(one - other) for one, other in zip(rounded, exact, strict=True)) < LOSS_NATS


def test_a_preset_that_does_not_exist_is_refused():
    process = with_preset("mac", "-c", "import hardware; hardware.preset()")
    assert process.returncode == 2
    assert process.stderr == ("hardware: NIGHTSHIFT_PRESET is 'mac': write cpu, metal or cuda, or leave it out\n")


# ---- compiled, as on a Mac ------------------------------------------------------------------------------------------


def small_script() -> str:
    """The shipped script with small dials for a Mac; everything else as a Mac has it."""
    return set_dials(SCRIPT.read_text(), "metal", SMALL)


@pytest.mark.slow  # MLX compiles for minutes
def test_the_compiled_branch_agrees_with_float32_too():
    process = with_preset("metal", BRANCH)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    pairs = zip(found["losses"], found["losses_float32"], strict=True)
    assert max(abs(one - other) for one, other in pairs) < LOSS_NATS


@pytest.mark.slow
def test_a_run_of_the_preset_trains_is_scored_and_audited(tmp_path, own_cache, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_PRESET", "metal")
    script = small_script()
    grounds = Grounds(make_repository(tmp_path / "user", script))
    grounds.try_scripts("mac", [set_dials(script, "metal", {"MATRIX_LR": 0.05})], budget_s=3.0, allowance_s=900.0)
    baseline, edit = grounds.attempts("mac")
    assert baseline.status is Status.KEEP
    score = baseline.runs[0].score
    assert score is not None
    assert 1 < (score.val_bpb or 0) < 8
    assert edit.runs[0].score is not None
    audits = [run.score.audit for attempt in (baseline, edit) for run in attempt.runs if run.score and run.score.audit]
    assert audits
    assert all(audit.passed for audit in audits)
