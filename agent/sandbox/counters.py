"""Where the kernel tells what this machine has done: counters that one run could raise and a later one read.

System calls, page faults, blocks, packets, open files: whoever is scored could leave numbers there for its auditor, and
no noise would blur them. Some files even act when they are read. A box with mounts of its own hides all of /proc but
what honest programs ask for, so that the counters of the next kernel are hidden as well. The amount of free memory and
the load stay: a system call tells both.
"""

from collections.abc import Iterator
from pathlib import Path

# facts about the machine and its devices, memory for those who fit themselves to it, and switches, which are read-only
ASKED = frozenset(
    {"bus", "cmdline", "cpuinfo", "devices", "driver", "filesystems", "meminfo", "misc", "modules", "sys", "version"}
)
WITHIN = ("proc/sys/fs", "proc/sys/kernel/pty", "proc/sys/kernel/random/entropy_avail")  # files and terminals in use
CLASSES = ("block", "net")  # of devices, each with its counters
OF_NODES = ("vmstat", "numastat")  # a processor's own memory
MAKES_DISKS = Path("/sys/class/zram-control")  # each reading of a file in there adds a disk, and tells its number
# of the control groups only the limits, by version: libraries read the container's share of cores and memory there
LIMITS = tuple(
    f"/sys/fs/cgroup/{name}"
    for name in (
        *("cpu.max", "cpuset.cpus.effective", "memory.max"),
        *("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us", "memory/memory.limit_in_bytes"),
    )
)


def counters(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the files and folders of /proc and /sys/devices to be hidden, none of them within another."""
    found = sorted({*_of_proc(root), *_of_devices(root), *_of_classes(root)})
    return tuple(path for path in found if not any(other in path.parents for other in found))


def _of_proc(root: Path) -> Iterator[Path]:
    for path in (root / "proc").iterdir():
        if not path.name.isdecimal() and path.name not in ASKED and not path.is_symlink():
            yield path
    yield from (path for name in WITHIN if (path := root / name).exists())


def _of_devices(root: Path) -> Iterator[Path]:
    devices = (root / "sys" / "devices").resolve()
    for path in (path for name in CLASSES for path in (root / "sys" / "class" / name).glob("*")):
        device = path.resolve()
        # with its siblings: the folder is "block" or "net", and for a partition the disk
        if device.is_dir() and len(device.parts) > len(devices.parts) + 2 and device.is_relative_to(devices):
            yield device.parent
    yield from (path for name in OF_NODES for path in (devices / "system" / "node").glob(f"node*/{name}"))


def _of_classes(root: Path) -> Iterator[Path]:
    """Settings and switches of a whole class, beside the links to its devices."""
    yield from (path for path in (root / "sys" / "class").glob("*/*") if path.is_file() and not path.is_symlink())
