"""List the kernel's counters that a box must hide, because one run could raise them and a later one read them.

Through counts of system calls, page faults, blocks, packets or open files, the scored process could send exact numbers
to the process that audits it. Some files even change something when they are read. Every box of Linux hides all of
/proc except what honest programs read, so the counters of future kernels are hidden, too; the counters within that, and
those of /sys, only a box with its own mounts can hide. Free memory and load remain visible: a system call returns both.
"""

from collections.abc import Iterator
from pathlib import Path

# facts about the machine and its devices, its memory (some libraries size themselves by it), and read-only switches
ASKED = frozenset(
    {"bus", "cmdline", "cpuinfo", "devices", "driver", "filesystems", "meminfo", "misc", "modules", "sys", "version"}
)
WITHIN = ("proc/sys/fs", "proc/sys/kernel/pty", "proc/sys/kernel/random/entropy_avail")  # open files, terminals in use
CLASSES = ("block", "net")  # classes of devices with counters
OF_NODES = ("vmstat", "numastat")  # counters of each memory node
MAKES_DISKS = Path("/sys/class/zram-control")  # reading a file in there adds a disk and returns its number
# the limits of control groups: libraries read the container's share of cores and memory there
LIMITS = tuple(f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpuset.cpus.effective", "memory.max"))


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
        # the parent folder is "block" or "net", or the disk of a partition; it holds the device's siblings, too
        if device.is_dir() and len(device.parts) > len(devices.parts) + 2 and device.is_relative_to(devices):
            yield device.parent
    yield from (path for name in OF_NODES for path in (devices / "system" / "node").glob(f"node*/{name}"))


def _of_classes(root: Path) -> Iterator[Path]:
    """Yield the plain files of a class, which are settings and switches, without the links to its devices."""
    yield from (path for path in (root / "sys" / "class").glob("*/*") if path.is_file() and not path.is_symlink())
