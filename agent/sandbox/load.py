"""How busy other programs kept this machine while one process tree ran.

A script that overran its time on a quiet machine is too slow; on a busy one, the overrun says little about it. So a
machine counts as quiet only where that was measured. Inside a container the counters may be those of the whole host:
then neighbours that do no harm count as well. What others do on a GPU is not seen at all.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

BUSY_SHARE = 0.10  # of all processor time, taken by others: from here on, a run that overran is given a second chance
STALLED_SHARE = 0.10  # of the wall clock, in which something on the machine waited for its disk or its memory
PRESSURE = Path("/proc/pressure")  # Linux's pressure stall information
NOT_WORK = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is counted in user and nice as well


@dataclass(frozen=True, slots=True)
class Counters:
    """Seconds since the machine's start, over all its processors."""

    at_s: float  # by the monotonic clock
    busy_s: float
    idle_s: float
    own_s: float  # of the harness's own process
    stalled_s: Mapping[str, float] = field(default_factory=dict)  # by resource, where the kernel tells

    @classmethod
    def now(cls, pressure: Path = PRESSURE) -> "Counters":
        times = psutil.cpu_times()._asdict()
        own = os.times()
        return cls(
            at_s=time.monotonic(),
            busy_s=sum(seconds for name, seconds in times.items() if name not in NOT_WORK),
            idle_s=times["idle"] + times.get("iowait", 0.0),
            own_s=own.user + own.system,
            stalled_s={name: _stalled_s(pressure / name) for name in ("io", "memory") if (pressure / name).exists()},
        )


def busy(before: Counters, after: Counters, tree_s: float | None) -> str | None:
    """Why the machine may have been too busy for a process tree that took tree_s of processor time; None: it was quiet.

    The processors' own waiting is not looked at: the threads of one run wait for each other, too.
    """
    wall_s = after.at_s - before.at_s
    busy_s = after.busy_s - before.busy_s
    all_s = busy_s + after.idle_s - before.idle_s
    if tree_s is None or all_s < wall_s / 2:  # one processor alone would have counted wall_s
        return "it is not known how busy the machine was"
    others = (busy_s - tree_s - (after.own_s - before.own_s)) / all_s
    if others >= BUSY_SHARE:
        return f"other programs took {others:.0%} of the machine's processors"
    for name, began_s in before.stalled_s.items():
        share = (after.stalled_s.get(name, began_s) - began_s) / wall_s
        if share >= STALLED_SHARE:
            return f"programs waited for the machine's {'disk' if name == 'io' else name} {share:.0%} of the time"
    return None


def tree_cpu_s(tree: list[psutil.Process]) -> float:
    """Processor time of living processes and of their children that have ended."""
    total_s = 0.0
    for process in tree:
        with suppress(psutil.Error):
            taken = process.cpu_times()
            total_s += taken.user + taken.system + taken.children_user + taken.children_system
    return total_s


def _stalled_s(file: Path) -> float:
    """some avg10=0.00 avg60=0.00 avg300=0.00 total=156259905, in millionths of a second."""
    with suppress(OSError, ValueError, IndexError):
        return int(file.read_text().splitlines()[0].rpartition("total=")[2]) / 1e6
    return 0.0
