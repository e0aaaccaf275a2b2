"""What the doctor says of a machine: what is missing, and what is only slow."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from json_page import faults

from agent.cli import machine
from agent.cli.machine import Device, _disk, speed

IDLE = Device("cpu", "a CPU (2 cores)", 200.0, "/cache/libopenblas.so")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the BLAS is exchanged on Linux alone")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder that even root cannot write")
def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "folder" not in {found.name for found in _disk()}
    monkeypatch.chdir("/proc")
    assert next(found.detail for found in _disk() if found.name == "folder").startswith(
        "folder: /proc cannot be written"
    )


@on_linux
@pytest.mark.parametrize(
    ("device", "is_well", "said", "remedy"),
    [
        (IDLE, True, "float32 matmul: 200 GFLOP/s", ""),
        (replace(IDLE, gflops=8.0, blas=None), False, "8 GFLOP/s", "an optimised BLAS is missing; install it"),
        (replace(IDLE, gflops=12.0), False, "12 GFLOP/s", "this machine is slow, or busy with other programs"),
    ],
)
def test_the_speed_of_a_device_is_told_with_what_makes_it_slow(monkeypatch, device, is_well, said, remedy):
    monkeypatch.delenv("NIGHTSHIFT_BLAS", raising=False)
    found = speed(device)
    assert (found.ok, found.essential) == (is_well, False)
    assert said in found.detail
    assert remedy in str(found.remedy)
    monkeypatch.setenv("NIGHTSHIFT_BLAS", "off")
    assert ("unset NIGHTSHIFT_BLAS" in str(speed(device).remedy)) == (device.blas is None)


def test_a_night_without_data_is_possible_where_they_can_be_prepared(tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "not yet" / "there"))
    assert machine._data().ok
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "file" / "there"))
    finding = machine._data()
    assert (finding.ok, finding.essential) == (False, True)
    assert f"{tmp_path / 'file'} cannot hold any" in finding.detail


def test_the_doctor_says_what_is_there_and_only_what_a_night_needs_makes_it_fail(grounds, tmp_path):
    done = grounds.nightshift("doctor", "--json", NIGHTSHIFT_DATA=str(tmp_path), CC="/bin/false")
    told = json.loads(done.stdout)
    assert faults("doctor", told) == []
    bad = {one["name"]: one["essential"] for one in told["checks"] if not one["ok"]}
    assert (done.returncode, told["exit_code"], told["ready"]) == (1, 1, False)
    assert told["error"] == "not ready for a night: see data"
    assert [name for name, essential in bad.items() if essential] == ["data"]
    for part in ("✓ Python 3", "✓ MLX build: mlx", "✓ device: ", "GFLOP/s", "✓ git repository", "✓ disk", "✗ data: "):
        assert part in done.stderr


def test_a_script_elsewhere_needs_the_files_beside_it(grounds, monkeypatch):
    monkeypatch.chdir(grounds.root)
    assert "train_mlx.py" in machine._script(Path("train_mlx.py")).detail
    (grounds.root / "inner").mkdir()
    (grounds.root / "train_mlx.py").rename(grounds.root / "inner" / "other.py")
    assert "prepare.py is missing, and every run needs it" in machine._script(Path("inner/other.py")).detail
    (grounds.root / "prepare.py").rename(grounds.root / "inner" / "prepare.py")
    assert machine._script(Path("inner/other.py")).ok
    assert not machine._script(Path("train_mlx.py")).ok
