"""Sleep is measured apart from work, and a Mac or a desktop is kept awake."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from wakepy import global_modes

from agent.clock import Stopwatch, clocks_s, kept_awake, out_of_reach_of_ctrl_c


def test_sleep_is_no_time_of_the_run():
    times = {"awake": 1000.0, "always": 5000.0}
    watch = Stopwatch(lambda: (times["awake"], times["always"]))
    times |= {"awake": 1015.0, "always": 5045.0}  # the machine slept for 30 s
    assert (watch.elapsed_s, watch.slept_s) == (15, 30)
    times["awake"] += 31  # clocks that differ a little tell no negative sleep
    assert watch.slept_s == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a Linux clock")
def test_linux_has_a_clock_that_counts_sleep():
    awake_s, always_s = clocks_s()
    assert awake_s == pytest.approx(time.monotonic(), abs=1)
    assert always_s == pytest.approx(float(Path("/proc/uptime").read_text().split()[0]), abs=1)


# ---- kept awake ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a session bus that no process serves."""
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    return tmp_path / "bus"


def test_where_the_bus_of_a_desktop_does_not_answer_the_night_goes_on(bus):
    with kept_awake("linux"):
        subprocess.run(["true"], check=True)


def test_a_desktop_is_kept_awake_until_the_night_ends_or_fails(bus, monkeypatch):
    monkeypatch.setenv("WAKEPY_FAKE_SUCCESS", "1")  # wakepy's own way to test without a desktop

    def fails() -> None:
        assert [mode.active for mode in global_modes()] == [True]
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), kept_awake("linux"):
        fails()
    assert global_modes() == []


@pytest.mark.skipif(sys.platform != "darwin", reason="caffeinate is part of macOS")
def test_a_mac_holds_an_assertion_against_idle_sleep():
    with kept_awake():
        held = subprocess.run(["pmset", "-g", "assertions"], capture_output=True, text=True, check=True).stdout
    assert "caffeinate" in held


def test_ctrl_c_does_not_reach_what_keeps_awake():
    with out_of_reach_of_ctrl_c():
        child = subprocess.Popen(["sleep", "60"])
    try:
        for ignored in (signal.SIGINT, signal.SIGHUP):
            child.send_signal(ignored)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.1)
    finally:
        child.terminate()
    assert child.wait() == -signal.SIGTERM
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
