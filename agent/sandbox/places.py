"""List the places of the machine that a box shows, the system, this Python and the GPUs, and what it hides in them.

Hidden are the user's own folders, and the kernel's counters, because one run could raise them and a later one read
them. Through counts of system calls, page faults, blocks, packets or open files, the scored process could send exact
numbers to the process that audits it. Some files even change something when they are read. Every box of Linux hides all
of /proc except what honest programs read, so the counters of future kernels are hidden, too; only those in a process's
own folder there remain visible. So do free memory and load: a system call returns both.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import MachineError
from agent.files import home_folder

# the limits of control groups: libraries read the container's share of cores and memory there
LIMITS = tuple(f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpuset.cpus.effective", "memory.max"))
# Programs, libraries, compilers, and the facts about the machine that libraries read. /etc, /home, /opt, /run and /var
# are not shown as a whole.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/sys/devices", "/sys/bus", "/sys/class", *LIMITS, "/sys/module/nvidia", "/sys/module/nvidia_uvm"),
)
PYTHON_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
# Of /proc: facts about the machine and its devices, its memory (some libraries size themselves by it), and read-only
# switches.
ASKED = frozenset(
    {"bus", "cmdline", "cpuinfo", "devices", "driver", "filesystems", "meminfo", "misc", "modules", "sys", "version"}
)
COUNTING = (
    *("proc/sys/fs", "proc/sys/kernel/pty", "proc/sys/kernel/random/entropy_avail"),  # open files, terminals in use
    *(f"sys/devices/system/node/node*/{name}" for name in ("vmstat", "numastat")),
)
GPU_DEVICES = ("nvidia*", "nvidia-limits/*", "dri/renderD*")


@dataclass(frozen=True, slots=True)
class View:
    """List the absolute paths that one process sees besides the system and Python."""

    folder: Path  # its working folder, the only one it may write
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()  # folders inside visible ones that must stay hidden


def around_hidden(places: Iterable[Path], hidden: Sequence[Path], *, links: bool = False) -> Iterator[Path]:
    """Yield these places, with each one that holds a hidden folder replaced by its other entries.

    A link among these entries is yielded for a box that makes links itself; a box that allows a path allows what it
    leads to. Raise MachineError if such a place cannot be listed.
    """
    closed = [place.resolve() for place in hidden]
    for place in places:
        real = place.resolve()
        if (links and place.is_symlink()) or not any(_is_below(folder, real) for folder in closed):
            yield place
            continue
        try:
            entries = sorted(real.iterdir())
        except OSError as error:
            raise MachineError(
                f"{real} holds files that no script may see, and cannot be listed ({error.strerror}); make it readable"
            ) from None
        shown = [entry for entry in entries if entry not in closed and (links or not entry.is_symlink())]
        yield from around_hidden(shown, closed, links=links)


def system_around(hidden: Sequence[Path], *, links: bool = False) -> Iterator[Path]:
    """Yield the places of the system around the hidden folders."""
    return around_hidden(map(Path, SYSTEM), hidden, links=links)


def python_around(hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield python_places() around the hidden folders; of one that holds such a folder only Python's own parts."""
    closed = [place.resolve() for place in hidden]
    for place in python_places(closed):
        holds = any(folder.is_relative_to(place.resolve()) for folder in closed)
        yield from around_hidden([place / part for part in PYTHON_PARTS], closed) if holds else [place]


def python_places(hidden: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders of this interpreter, its packages and $LD_LIBRARY_PATH: read-only in every box.

    A folder inside another one of them, or inside the system, is left out, unless it lies in a hidden part of that one.
    """
    named = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    named += [Path(entry) for entry in sys.path if any(Path(entry).glob("*.dist-info"))]
    named += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    named += _steps_to_python()
    # without `..`: the folder before it may not be visible in the box
    spelled = {Path(os.path.normpath(path.absolute())) for path in named if path.exists()}
    spelled |= {path.resolve() for path in named if path.exists()}
    home = home_folder()
    # none may show the whole home
    places = {place for place in spelled if home is None or not home.is_relative_to(place.resolve())}
    around = [*places, *map(Path, SYSTEM)]
    return tuple(sorted(place for place in places if not any(_shows(other, place, hidden) for other in around)))


def _steps_to_python() -> Iterator[Path]:
    """Yield every link from sys.executable to the real interpreter: each must be visible to be followed."""
    step = Path(sys.executable)
    while step.is_symlink():
        yield from (step, step.parent.resolve() / step.name)
        step = step.parent / step.readlink()
    yield step


def _shows(other: Path, place: Path, hidden: Iterable[Path]) -> bool:
    between = (folder for folder in hidden if _is_below(folder, other))
    return _is_below(place, other) and not any(place.is_relative_to(folder) for folder in between)


def _is_below(path: Path, other: Path) -> bool:
    return path != other and path.is_relative_to(other)


def gpu_devices() -> tuple[Path, ...]:
    """Return the device files of this machine's GPUs."""
    return tuple(sorted(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)))


def counters() -> tuple[Path, ...]:
    """Return the files and folders of /proc and /sys to be hidden within what is shown, none of them within another."""
    counting = {path for name in COUNTING for path in Path("/").glob(name)}
    counting |= {
        path
        for path in Path("/proc").iterdir()
        if not (path.name.isdecimal() or path.name in ASKED or path.is_symlink())
    }
    classes, devices = Path("/sys/class"), Path("/sys/devices").resolve()
    # the plain files of a class are settings and switches; its links lead to devices
    counting |= {path for path in classes.glob("*/*") if path.is_file() and not path.is_symlink()}
    for link in (*classes.glob("block/*"), *classes.glob("net/*")):
        device = link.resolve()
        # the parent folder is "block" or "net", or the disk of a partition; it holds the device's siblings, too
        if device.is_dir() and len(device.parts) > len(devices.parts) + 2 and device.is_relative_to(devices):
            counting.add(device.parent)
    return tuple(path for path in sorted(counting) if not any(other in path.parents for other in counting))
