"""The machine is described, and MLX gets a fast BLAS on a Linux CPU."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.lab import hardware

ROOT = Path(hardware.__file__).parents[2]
linux_cpu = pytest.mark.skipif(
    sys.platform != "linux" or hardware.device_kind() != "cpu", reason="the BLAS is replaced on a Linux CPU only"
)


def python(code: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    )


def answer(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("Apple M4 Max", 17.2),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3", 989),
        ("Apple M40", None),
    ],
)
def test_the_table_of_chips_knows_a_device_by_its_name(name, tflops):
    assert hardware.known_tflops(name) == tflops


@linux_cpu
def test_the_fast_blas_computes_the_same():
    check = (
        "import numpy as np; from agent.lab import hardware; hardware.tune(); import mlx.core as mx;"
        "rng = np.random.default_rng(0);"
        "a, b = rng.standard_normal((2, 65, 65), dtype=np.float32);"
        "np.testing.assert_allclose(mx.array(a) @ mx.array(b), a @ b, atol=1e-4);"
        "print('same')"
    )
    assert answer(python(check)) == "same"


@pytest.mark.slow
@linux_cpu
def test_two_processes_may_make_the_blas_at_once(tmp_path):
    multiply = "from agent.lab import hardware; assert hardware.tune(); print(hardware.matmul_flops(1024))"
    together = [python(multiply, NIGHTSHIFT_CACHE=str(tmp_path)) for _ in range(3)]
    assert all(float(answer(process)) > 0 for process in together)
    assert [path.suffix for path in (tmp_path / "blas").iterdir()] == [".so"], "nothing is left beside it"


def spin(seconds: float) -> None:
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        pass


def test_a_budget_leaves_out_what_other_programs_took(busy_machine):
    clock, ran_s, began_s = hardware.BudgetClock(), time.process_time(), time.perf_counter()
    spin(0.8)
    least_s = (time.perf_counter() - began_s) / hardware.MOST_STRETCH
    assert clock.elapsed_s == pytest.approx(max(least_s, time.process_time() - ran_s), rel=0.3)


def test_a_script_that_sleeps_gains_no_time(busy_machine):
    clock = hardware.BudgetClock()
    time.sleep(0.5)
    assert clock.elapsed_s > 0.3
