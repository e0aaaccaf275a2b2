"""Time as a night needs it: how long a run was awake, whether the machine slept meanwhile, and keeping it from that."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

SLEEP_TOLERANCE_S = 2.0  # a run that slept for longer has lost part of its budget: it is void

Clock = Callable[[], float]


class Stopwatch:
    """Runs from its construction, by two clocks that no change of the wall clock moves."""

    def __init__(self, awake: Clock | None = None, always: Clock | None = None) -> None:
        ours = clocks(sys.platform)
        self._awake, self._always = awake or ours[0], always or ours[1]
        self._start_awake, self._start_always = self._awake(), self._always()

    @property
    def elapsed_s(self) -> float:
        """Seconds in which the machine was awake."""
        return self._awake() - self._start_awake

    @property
    def slept_s(self) -> float:
        """Seconds in which it slept; 0 on a system that does not tell."""
        awake_s = self.elapsed_s  # read first: a moment between the two readings is no sleep of less than nothing
        return max(0.0, self._always() - self._start_always - awake_s)


def clocks(platform: str) -> tuple[Clock, Clock]:
    """A clock that stops while the machine sleeps, and one that goes on; the same one twice where only one is known."""
    names = {"linux": ("CLOCK_MONOTONIC", "CLOCK_BOOTTIME"), "darwin": ("CLOCK_UPTIME_RAW", "CLOCK_MONOTONIC_RAW")}
    match [getattr(time, name, None) for name in names.get(platform, ())]:
        case [int(awake), int(always)]:
            return lambda: time.clock_gettime(awake), lambda: time.clock_gettime(always)
    return time.monotonic, time.monotonic


def boot_id(platform: str = sys.platform) -> str:
    """Another one after every start of the machine; empty on a system that does not tell."""
    try:
        if platform == "darwin":
            command = ["sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@contextmanager
def kept_awake(platform: str = sys.platform) -> Iterator[None]:
    """Keeps a Mac from falling asleep over a night's work; elsewhere, and without caffeinate, nothing happens."""
    caffeinate = _caffeinate() if platform == "darwin" else None
    try:
        yield
    finally:
        if caffeinate is not None:
            caffeinate.terminate()
            caffeinate.wait()


def _caffeinate() -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            ["caffeinate", "-i", "-w", str(os.getpid())],  # -w: it ends with us, however we end
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
