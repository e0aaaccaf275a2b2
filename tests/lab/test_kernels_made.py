"""The kernels' machine code is made once, kept, and left aside where it cannot be made."""

import subprocess
import sys

import pytest
from nights import environment

from agent.lab import hardware
from agent.lab.kernels.cache import kept
from agent.lab.kernels.device import kernel_device

needs_kernels = pytest.mark.skipif(kernel_device() is None, reason="no kernels of our own for this device")


def test_machine_code_is_kept_and_made_again_where_it_was_damaged_or_there_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path))
    path = kept("test", "recipe", lambda: b"machine code")
    assert kept("test", "recipe", lambda: b"never made") == path
    path.write_bytes(b"machine")
    again = kept("test", "recipe", lambda: b"machine code")
    assert again.read_bytes() == b"machine code"
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(path))
    assert kept("test", "recipe", lambda: b"machine code").read_bytes() == b"machine code"


@pytest.mark.skipif(hardware.device_kind() != "cpu", reason="only the CPU's kernels need a compiler")
@pytest.mark.parametrize("compiler", ["/bin/true", "/nowhere/cc"])
def test_without_a_compiler_that_works_plain_mlx_trains(tmp_path, compiler):
    process = ask_for_kernels(NIGHTSHIFT_CACHE=str(tmp_path), CC=compiler, PATH=str(tmp_path))
    assert process.stdout.strip() == "None", process.stderr
    assert "training goes on with plain MLX" in process.stderr


@pytest.mark.parametrize(("value", "answer", "code"), [("plain", "None", 0), ("plian", "", 2)])
@needs_kernels
def test_the_environment_can_leave_every_kernel_aside(value, answer, code):
    process = ask_for_kernels(NIGHTSHIFT_KERNELS=value)
    assert process.stdout.startswith(answer), process.stderr
    assert process.returncode == code
    assert ("write plain, or leave it out" in process.stderr) == (code == 2)


def ask_for_kernels(**variables: str) -> subprocess.CompletedProcess[str]:
    script = "from agent.lab.kernels.device import kernel_device; print(kernel_device())"
    return subprocess.run([sys.executable, "-c", script], env=environment(**variables), capture_output=True, text=True)
