"""What the doctor says of a machine: what is missing, what is only slow, and what other programs take."""

import json
import multiprocessing
import sys
from dataclasses import replace

import pytest
from json_page import faults
from nights import git

from agent.cli import machine
from agent.cli.machine import DEVICE, Device, Finding, _disk, speed

IDLE = Device("cpu", "a CPU (2 cores)", 200.0, "/cache/libopenblas.so", cores=2, others=0.1, machine_cores=2)
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the BLAS is exchanged on Linux alone")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder that even root cannot write")
def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "folder" not in {found.name for found in _disk()}
    monkeypatch.chdir("/proc")
    assert next(found.detail for found in _disk() if found.name == "folder").startswith(
        "folder: /proc cannot be written"
    )


def test_a_fast_and_idle_machine_is_well():
    assert speed(IDLE) == Finding("speed", True, "float32 matmul: 200 GFLOP/s", speed(IDLE).remedy, essential=False)


def test_a_busy_machine_is_told_to_be_busy_and_to_install_nothing():
    found = speed(replace(IDLE, gflops=26.0, others=1.6))
    assert found.detail == "float32 matmul: 26 GFLOP/s while other programs keep 1.6 of 2 cores busy"
    assert (found.ok, found.essential) == (False, False)
    assert found.remedy.startswith("the machine is busy")
    assert "install" not in found.remedy


@on_linux
def test_a_package_is_advised_where_it_is_missing_also_on_a_busy_machine(monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_BLAS", raising=False)
    for others in (0.0, 1.6):
        found = speed(replace(IDLE, gflops=8.0, blas=None, others=others))
        assert "an optimised BLAS is missing; install it: " in found.remedy
        assert "[cpu]'" in found.remedy


@on_linux
def test_a_blas_that_was_turned_off_is_not_told_to_be_missing(monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_BLAS", "off")
    assert "unset NIGHTSHIFT_BLAS" in speed(replace(IDLE, gflops=8.0, blas=None)).remedy


def test_an_idle_machine_that_lacks_nothing_and_is_slow_is_only_slow():
    found = speed(replace(IDLE, gflops=12.0))
    assert (found.ok, found.remedy) == (False, "this machine is slow, and nothing that could be installed is missing")


def test_a_container_is_not_busy_by_what_its_neighbours_do_on_other_cores():
    assert not replace(IDLE, others=40.0, machine_cores=64).is_contended
    assert replace(IDLE, others=63.0, machine_cores=64).is_contended


def _spin() -> None:
    while True:
        pass


def test_what_other_programs_use_is_measured():
    spinner = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    spinner.start()
    try:
        found = machine.ask(DEVICE)
    finally:
        spinner.kill()
        spinner.join()
    assert isinstance(found, dict)
    assert Device(**found).others > 0.3


def test_a_night_without_data_is_possible_where_they_can_be_prepared(tmp_path, monkeypatch):
    monkeypatch.delenv("NIGHTSHIFT_DATA", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "not yet" / "there"))
    assert [finding.ok for finding in machine._data()] == [True]
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTSHIFT_CACHE", str(tmp_path / "file" / "there"))
    (finding,) = machine._data()
    assert (finding.ok, finding.essential) == (False, True)
    assert f"{tmp_path / 'file'} cannot hold any" in finding.detail


def test_only_what_a_night_needs_makes_the_doctor_fail(grounds, tmp_path):
    done = grounds.nightshift("doctor", "--json", NIGHTSHIFT_DATA=str(tmp_path), CC="/bin/false")
    told = json.loads(done.stdout)
    assert faults("doctor", told) == []
    bad = {one["name"]: one["essential"] for one in told["checks"] if not one["ok"]}
    assert (done.returncode, told["exit_code"], told["ready"]) == (1, 1, False)
    assert told["error"] == "not ready for a night: see data"
    assert [name for name, essential in bad.items() if essential] == ["data"]


def test_a_cross_is_what_a_night_cannot_do_without_and_the_last_line_names_it(grounds, tmp_path):
    done = grounds.nightshift("doctor", NIGHTSHIFT_DATA=str(tmp_path))
    crossed = [line for line in done.stdout.splitlines() if line.startswith("✗")]
    assert [line.partition(":")[0] for line in crossed] == ["✗ data"]
    assert done.stderr.splitlines()[-1] == "nightshift: not ready for a night: see data"
    assert done.returncode == 1


def test_a_script_without_the_files_that_it_needs_is_not_ready_for_a_night(grounds):
    (grounds.root / "prepare.py").unlink()
    done = grounds.nightshift("doctor")
    assert done.returncode == 1
    assert "✗ script: " in done.stdout
    assert "prepare.py is missing, and every run needs it" in done.stdout
    assert "not ready for a night: see script" in done.stderr


def test_an_empty_folder_is_not_told_to_commit_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (outside,) = machine._git()
    assert outside.detail.endswith("is not in a git repository; run: nightshift init")
    git(tmp_path, "init", "-q")
    (empty,) = machine._git()
    assert empty.detail.endswith("has no commits yet; run: nightshift init")
    (tmp_path / "train_mlx.py").write_text("")
    (begun,) = machine._git()
    assert begun.detail.endswith("has no commits yet; run: git add . && git commit -m start")
