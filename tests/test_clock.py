"""Sleep is measured apart from work, and a Mac is kept awake."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.clock import SLEEP_TOLERANCE_S, Stopwatch, clocks, kept_awake


class Machine:
    """Provide two clocks, of which one stops during sleep."""

    def __init__(self) -> None:
        self.awake_s, self.always_s = 1000.0, 5000.0

    def work(self, seconds: float) -> None:
        self.awake_s += seconds
        self.always_s += seconds

    def sleep(self, seconds: float) -> None:
        self.always_s += seconds


def test_sleep_is_no_time_of_the_run():
    machine = Machine()
    machine.sleep(50)
    watch = Stopwatch(lambda: machine.awake_s, lambda: machine.always_s)
    assert (watch.elapsed_s, watch.slept_s) == (0, 0)
    machine.work(10)
    machine.sleep(30)
    machine.work(5)
    assert (watch.elapsed_s, watch.slept_s) == (15, 30)


def test_clocks_that_differ_a_little_tell_no_negative_sleep():
    machine = Machine()
    watch = Stopwatch(lambda: machine.awake_s, lambda: machine.always_s)
    machine.awake_s += 1e-6
    assert watch.slept_s == 0


def test_this_machine_has_not_slept_during_this_test():
    watch = Stopwatch()
    time.sleep(0.05)
    assert 0.05 <= watch.elapsed_s < 5
    assert watch.slept_s < 0.05 < SLEEP_TOLERANCE_S


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux clock")
def test_linux_has_a_clock_that_counts_sleep():
    awake, always = clocks("linux")
    assert awake() == pytest.approx(time.monotonic(), abs=1)
    assert always() == pytest.approx(float(Path("/proc/uptime").read_text().split()[0]), abs=1)


def test_elsewhere_sleep_is_not_told():
    awake, always = clocks("plan9")
    assert awake is always


def test_a_mac_is_asked_for_its_raw_clocks(monkeypatch):
    monkeypatch.setattr(time, "CLOCK_UPTIME_RAW", 8, raising=False)
    monkeypatch.setattr(time, "CLOCK_MONOTONIC_RAW", 4, raising=False)
    monkeypatch.setattr(time, "clock_gettime", {8: 100.0, 4: 160.0}.__getitem__)
    assert [clock() for clock in clocks("darwin")] == [100.0, 160.0]


# ---- kept awake ------------------------------------------------------------------------------------------------------


@pytest.fixture
def caffeinate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a stand-in that records its calls and its end, and runs until it is ended."""
    program, notes = tmp_path / "bin" / "caffeinate", tmp_path / "notes"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntrap 'echo ended >> {notes}; kill $!; exit' TERM\n"
                       f"echo $$ \"$@\" > {notes}\nsleep 60 &\nwait\n")  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return notes


def called_with(notes: Path) -> list[str]:
    deadline = time.monotonic() + 10
    while not (notes.exists() and notes.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return notes.read_text().split()


def test_a_mac_stays_awake_for_as_long_as_it_holds(caffeinate):
    with kept_awake("darwin"):
        pid, *arguments = called_with(caffeinate)
        assert arguments == ["-i", "-w", str(os.getpid())]
        os.kill(int(pid), 0)
    assert caffeinate.read_text().endswith("ended\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_an_error_ends_it_as_well(caffeinate):
    def work() -> None:
        with kept_awake("darwin"):
            called_with(caffeinate)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()
    assert caffeinate.read_text().endswith("ended\n")


def test_without_caffeinate_the_night_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with kept_awake("darwin"):
        pass


def test_elsewhere_nothing_is_started(caffeinate):
    with kept_awake("linux"):
        subprocess.run(["true"], check=True)
    assert not caffeinate.exists()
