"""What a Mac runs trains, is scored and agrees with float32, on the device of this machine."""

import json
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from nights import PROJECT, SCRIPT, Grounds, environment, make_repository

from agent.experiment import Status
from agent.script.dials import set_dials

BRANCH = PROJECT / "tests" / "metal_branch.py"
BFLOAT16 = 0.02  # relative: sums of tens of products, of which each was rounded to 8 bits
FLOAT32 = 1e-5
OPTIMIZER = {"adamw", "nesterov", "cautious_step"}  # float32 on every device
LOSS_NATS = 0.05  # a small model's loss after some steps, the same in bfloat16 and in float32
SMALL = {"DEPTH": 2, "ASPECT_RATIO": 32, "HEAD_DIM": 32, "BATCH_ROWS": 2, "LOG_EVERY_S": 0.0}


class Mac(NamedTuple):
    """A Mac's figures, computed by hand: how the shipped preset, and one of twice the depth, are cut."""

    memory_gb: int  # memory as it is sold: binary gigabytes
    limit_gb: float  # 0.9 of recommendedMaxWorkingSetSize in 10⁹ bytes, as llama.cpp's logs have it on such Macs
    shipped: tuple[int, int, float]  # rows, micro-steps, gigabytes of a step
    deeper: tuple[int, int, float] | str  # the same with DEPTH = 12, or why it is refused


# By hand for 16 rows of 1024 tokens, depth 6, width 384, vocabulary 8192, 38.9 M parameters, in 10⁹ bytes:
# logits 16384·8192·16 = 2.15; activations 16384·6·384·36·2 = 2.72; scores, 4 windows of 512 and 2 of 1024, and four
# arrays of the widest: 16384·6·2·(4·512 + 2·1024 + 4·1024) = 1.61; weights 38.9 M · 32 = 1.25. Together 7.72; with half
# the rows 4.48. With depth 12 and width 768, 160 M parameters: 2.15 + 10.87 + 4.63 + 5.13 = 22.78; 4 rows 9.55.
MACS = (
    Mac(8, 5.15, (8, 2, 4.48), "a step of 1 rows would need about 6.2 GB"),
    Mac(16, 10.31, (16, 1, 7.72), (4, 4, 9.55)),
    Mac(36, 26.09, (16, 1, 7.72), (16, 1, 22.78)),
)


def with_preset(preset: str, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(NIGHTSHIFT_PRESET=preset, **more)
    return subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report() -> dict:
    """What the branch of a Mac has computed; not compiled, which takes a C++ compiler most of a minute."""
    process = with_preset("metal", BRANCH, json.dumps([mac.limit_gb for mac in MACS]), MLX_DISABLE_COMPILE="1")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_preset_takes_a_macs_dials_and_no_kernel_of_ours(report):
    assert report["preset"] == {
        "dtype": "mlx.core.bfloat16", "compile": True, "batch_rows": 16, "depth": 6, "kernels": False,
    }  # fmt: skip


def test_every_public_operation_agrees_with_float32(report):
    errors = report["errors"]
    assert {name for name in errors if name not in OPTIMIZER and not 0 < errors[name] < BFLOAT16} == set()
    assert {name for name in OPTIMIZER if not 0 < errors[name] < FLOAT32} == set()


def test_the_step_of_the_preset_learns_as_in_float32(report):
    rounded, exact = report["losses"], report["losses_float32"]
    assert rounded != exact
    assert rounded[-1] < rounded[0] - 1
    np.testing.assert_allclose(rounded, exact, atol=LOSS_NATS)


def test_the_batch_is_cut_to_the_memory_of_a_mac_as_computed_by_hand(report):
    assert [tuple(fit) for fit in report["fits"]["6"]] == [mac.shipped for mac in MACS]
    for mac, fit in zip(MACS, report["fits"]["12"], strict=True):
        assert fit.startswith(mac.deeper) if isinstance(mac.deeper, str) else tuple(fit) == mac.deeper
    assert report["fits"]["12"][0].endswith("lower BATCH_ROWS (raise MICRO_STEPS), DEPTH or ASPECT_RATIO")


def test_the_estimate_is_above_what_attention_scores_fill_and_not_far_above(report):
    peak_mb, estimated_mb = report["peak_mb"]
    assert peak_mb < estimated_mb < 2 * peak_mb
    little, enough = report["outgrown_gb"]  # a peak that is half above the estimate is told
    assert 0.4 <= little < 0.6
    assert enough is None


def test_a_preset_that_does_not_exist_is_refused():
    process = with_preset("mac", "-c", "from agent.lab import hardware; hardware.preset()")
    assert process.returncode == 2
    assert process.stderr == ("hardware: NIGHTSHIFT_PRESET is 'mac': write cpu, metal or cuda, or leave it out\n")


@pytest.mark.slow
def test_a_run_of_the_preset_trains_is_scored_and_audited(tmp_path, own_cache, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_PRESET", "metal")
    script = set_dials(SCRIPT.read_text(), "metal", SMALL)  # everything else as a Mac has it
    grounds = Grounds(make_repository(tmp_path / "user", script))
    grounds.try_scripts("mac", [set_dials(script, "metal", {"MATRIX_LR": 0.05})], budget_s=3.0, allowance_s=900.0)
    baseline, edit = grounds.attempts("mac")
    assert baseline.status is Status.KEEP
    assert edit.runs[0].score is not None
    audits = [run.score.audit for attempt in (baseline, edit) for run in attempt.runs if run.score]
    assert {audit.passed for audit in audits if audit is not None} == {True}
