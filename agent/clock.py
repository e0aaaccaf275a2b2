"""Measure time awake and asleep, keep a Mac or a desktop awake, and identify a start of the machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

SLEEP_TOLERANCE_S = 2.0  # a run that slept longer has lost part of its budget and does not count


def clocks_s() -> tuple[float, float]:
    """Return the times of a clock that stops while the machine sleeps, and of one that runs on.

    Changes of the wall clock affect neither.
    """
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_UPTIME_RAW), time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    return time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime(time.CLOCK_BOOTTIME)


def always_s() -> float:
    """Return the time of the clock that runs on while the machine sleeps; it is the same in all processes."""
    return clocks_s()[1]


class Stopwatch:
    """Measure time since its construction."""

    def __init__(self, clocks_s: Callable[[], tuple[float, float]] = clocks_s) -> None:
        self._clocks_s = clocks_s
        self._awake_s, self._always_s = clocks_s()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds in which the machine was awake."""
        return self._clocks_s()[0] - self._awake_s

    @property
    def slept_s(self) -> float:
        """Return the seconds in which it slept."""
        awake_s, always_s = self._clocks_s()
        return max(0.0, always_s - self._always_s - (awake_s - self._awake_s))


def boot_id() -> str:
    """Return an identifier that changes at every start of the machine; empty on a system that has none."""
    try:
        if sys.platform == "darwin":
            command = ["sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout.strip()
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@contextmanager
def kept_awake(platform: str = sys.platform) -> Iterator[None]:
    """Keep a Mac, or a Linux desktop, from falling asleep during the `with` block.

    On a Mac, caffeinate does it, and ends with this process; on a desktop, the session bus. A server has neither, and
    nothing is done there. A failure does no harm: sleep is measured, and a run that slept is redone. The display may
    sleep: meanwhile the watchdog of a Mac's GPU leaves runs alone.
    """
    with ExitStack() as undo:
        if platform == "darwin" or (platform == "linux" and os.environ.get("DBUS_SESSION_BUS_ADDRESS")):
            from wakepy import keep  # takes a third of a second

            with out_of_reach_of_ctrl_c():
                undo.enter_context(keep.running(on_fail="pass"))
        yield


@contextmanager
def out_of_reach_of_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C and a closed terminal from children that start during the `with` block: a run may go on for minutes.

    Children inherit which signals are held back; one that comes to us meanwhile is delivered at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def utc_now(timespec: str = "seconds") -> str:
    """Return the time as in 2026-01-31T23:59:59Z; timespec: milliseconds for 2026-01-31T23:59:59.123Z."""
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def hours_since(written: str) -> float:
    """Return the hours since a time as utc_now writes it; raise ValueError or TypeError for any other text."""
    return (datetime.now(UTC) - datetime.fromisoformat(written)) / timedelta(hours=1)
