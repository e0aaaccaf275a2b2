"""Measure how busy other programs kept this machine while one process tree ran.

A script that overran its time on a quiet machine is too slow; on a busy machine the overrun says little about it. A
machine counts as quiet only if that was measured. Inside a container the counters may cover the whole host, so that
harmless neighbours count as well. Of a tree that is pinned only its own cores are looked at, so that the night's other
workers are no other programs. Use of a GPU by others is only asked for before a night begins.
"""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from agent.amounts import counted

BUSY_SHARE = 0.10  # of all processor time, taken by others: from here on, a run that overran gets a second chance
STALLED_SHARE = 0.10  # of wall time in which some program waited for the machine's disk or memory
GPU_ASKED_S = 10.0  # longest wait for nvidia-smi
PRESSURE = Path("/proc/pressure")  # Linux's pressure stall information
STAT = Path("/proc/stat")  # Linux's counters of each core
KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")  # in its order
NOT_WORK = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is already counted in user and nice


@dataclass(frozen=True, slots=True)
class Counters:
    """Hold processor and stall seconds since the machine's start, summed over all processors or over some cores."""

    at_s: float  # by the monotonic clock
    busy_s: float
    idle_s: float
    own_s: float  # processor time of the harness itself; on some cores, of the calling thread, which uses these
    stalled_s: Mapping[str, float] = field(default_factory=dict)  # by resource; empty if the kernel does not tell
    cores: int | None = None  # None: all of the machine

    @classmethod
    def now(cls, pressure: Path = PRESSURE, cores: Sequence[int] = ()) -> "Counters":
        """Read the counters of these cores, or of the whole machine."""
        times = _times_of(cores) if cores else psutil.cpu_times()._asdict()
        own = os.times()
        return cls(
            at_s=time.monotonic(),
            busy_s=sum(seconds for name, seconds in times.items() if name not in NOT_WORK),
            idle_s=times["idle"] + times.get("iowait", 0.0),
            own_s=time.thread_time() if cores else own.user + own.system,
            stalled_s={name: _stalled_s(pressure / name) for name in ("io", "memory") if (pressure / name).exists()},
            cores=len(cores) or None,
        )


def busy(before: Counters, after: Counters, tree_s: float | None) -> str | None:
    """Return why the machine may have been too busy for a process tree, or None if it was quiet.

    tree_s is the processor time of the tree in seconds, or None if unknown. Pressure on processors is not read: the
    threads of one run also wait for each other.
    """
    wall_s = after.at_s - before.at_s
    others = None if tree_s is None else others_share(before, after, tree_s)
    if others is None:
        return "it is not known how busy the machine was"
    if others >= BUSY_SHARE:
        whose = f"the {counted(before.cores, 'core')} of this run" if before.cores else "the machine's processors"
        return f"other programs took {others:.0%} of {whose}"
    for name, began_s in before.stalled_s.items():
        share = (after.stalled_s.get(name, began_s) - began_s) / wall_s
        if share >= STALLED_SHARE:
            return f"programs waited for the machine's {'disk' if name == 'io' else name} {share:.0%} of the time"
    return None


def others_share(before: Counters, after: Counters, tree_s: float = 0.0) -> float | None:
    """Return the share of all processor time that others than this process and a tree took; None if unknown."""
    busy_s = after.busy_s - before.busy_s
    all_s = busy_s + after.idle_s - before.idle_s
    if all_s < (after.at_s - before.at_s) / 2:  # one processor alone would have counted all of it
        return None
    return (busy_s - tree_s - (after.own_s - before.own_s)) / all_s


def gpu_in_use(gpu: str | None = None) -> str | None:
    """Return how much others use a GPU, in words; None if little, or not known.

    It is named as in CUDA_VISIBLE_DEVICES; None: the first one that this process may use.
    """
    first = gpu or os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    asked = "--query-gpu=utilization.gpu,memory.used,memory.total"
    command = ["nvidia-smi", "-i", first, asked, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GPU_ASKED_S)
        percent, used_mb, all_mb = (float(part) for part in done.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    if percent < 100 * BUSY_SHARE and used_mb < BUSY_SHARE * all_mb:
        return None
    return f"the GPU is in use already: {percent:.0f}% of its time, {used_mb / 1024:.1f} of {all_mb / 1024:.1f} GB"


def tree_cpu_s(tree: list[psutil.Process]) -> float:
    """Return the processor seconds of these processes and of their ended children."""
    total_s = 0.0
    for process in tree:
        with suppress(psutil.Error):
            taken = process.cpu_times()
            total_s += taken.user + taken.system + taken.children_user + taken.children_system
    return total_s


def _times_of(cores: Sequence[int]) -> dict[str, float]:
    """Return the seconds of these cores by kind, from lines `cpu3 1234 56 …` in ticks; a core that is gone counts 0."""
    ticks_s = os.sysconf("SC_CLK_TCK")
    times = dict.fromkeys(KINDS, 0.0)
    for name, *counts in map(str.split, STAT.read_text().splitlines()):
        if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in cores:
            for kind, count in zip(KINDS, counts, strict=False):  # an older kernel counts fewer kinds
                times[kind] += int(count) / ticks_s
    return times


def _stalled_s(file: Path) -> float:
    """Read the seconds from a line `some avg10=0.00 avg60=0.00 avg300=0.00 total=156259905` (microseconds)."""
    with suppress(OSError, ValueError, IndexError):
        return int(file.read_text().splitlines()[0].rpartition("total=")[2]) / 1e6
    return 0.0
