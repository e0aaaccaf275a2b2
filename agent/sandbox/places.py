"""List the places of the machine that a sandbox shows, the system, this Python and the GPUs, and what it hides in them.

Hidden are the user's own folders, and the kernel's counters, because one run could raise them and a later one read
them. Through counts of system calls, page faults, blocks, packets or open files, the scored process could send exact
numbers to the process that audits it. Some files even change something when they are read. Every sandbox of Linux hides
all of /proc except what honest programs read, so the counters of future kernels are hidden, too; only those in a
process's own folder there remain visible. So do free memory and load: a system call returns both.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.errors import MachineError, NightError
from agent.files import home_folder

# Libraries read the container's share of cores and memory in the limits of control groups.
LIMITS = tuple(f"/sys/fs/cgroup/{name}" for name in ("cpu.max", "cpuset.cpus.effective", "memory.max"))
# Programs, compilers and their headers. /etc, /home, /opt, /run, /usr/share and /var are not shown as a whole: what is
# shown is held in memory (in_memory.py), and a system may have a million files.
STORES = ("/nix/store", "/gnu/store")  # Nix and Guix keep every package here, which is too much to hold in memory
SYSTEM = (
    *("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/libexec/gcc", *STORES),
    *("/usr/include", "/usr/local/include", "/usr/local/cuda*/include", "/usr/local/cuda*/targets/*/include"),
    *("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/local/cuda*/nvvm/libdevice"),
    *("/usr/local/nvidia", "/etc/alternatives", "/etc/localtime"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/usr/lib/os-release"),
)
# Libraries are here, and of their folders those that compilers and libraries ask for; the others belong to programs.
LIBRARIES = tuple(f"{root}/lib{kind}" for root in ("", "/usr", "/usr/local") for kind in ("", "32", "64", "x32"))
OF_LIBRARIES = ("*-linux-*", "gcc*", "llvm*", "clang*", "nvidia*", "wsl", "locale")
# Libraries read these facts about the machine; they are on no disk.
FACTS = ("/sys/devices", "/sys/bus", "/sys/class", *LIMITS, "/sys/module/nvidia", "/sys/module/nvidia_uvm")
# What is shown of Python's folder beside its libraries: conda has a compiler there, and a Mac's framework its library.
PYTHON_PARTS = ("bin", "include", "libexec", "*-linux-gnu", "pyvenv.cfg", "Python", "Resources")
LIBRARY = ("*.so*", "*.dylib")
# Folders in these that no run asks for: tests, packages of other environments, and those that talk to models, draw, or
# only help to develop; headers of programs that scripts do not extend.
UNASKED = ("test", "idlelib", "site-packages", "dist-packages", "modules", "firmware")
UNASKED_PACKAGES = (
    *("openai", "anthropic", "mcp", "ray", "trackio", "vl_convert"),
    *("mypy", "mypyc", "optuna", "sqlalchemy", "hypothesis", "playwright"),
)
UNASKED_HEADERS = ("node", "llvm-*")
# Of /proc: facts about the machine and its devices, its memory (some libraries size themselves by it), and read-only
# switches.
ASKED = frozenset(
    {"bus", "cmdline", "cpuinfo", "devices", "driver", "filesystems", "meminfo", "misc", "modules", "sys", "version"}
)
COUNTING = (
    *("proc/sys/fs", "proc/sys/kernel/pty", "proc/sys/kernel/random/entropy_avail"),  # open files, terminals in use
    *(f"sys/devices/system/node/node*/{name}" for name in ("vmstat", "numastat")),
    *(f"sys/devices/system/cpu/cpu*/{name}" for name in ("acpi_cppc", "cpuidle", "thermal_throttle")),
    "sys/devices/system/cpu/cpufreq/policy*/stats",
)
START_S = 60  # s; this suffices for an interpreter on a slow disk
GPU_DEVICES = ("nvidia*", "nvidia-limits/*", "dri/renderD*")


@dataclass(frozen=True, slots=True)
class View:
    """List the absolute paths that one process sees besides the system and Python."""

    folder: Path  # its working folder, the only one it may write
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()  # folders inside visible ones that must stay hidden


def around_hidden(places: Iterable[Path], hidden: Iterable[Path], *, links: bool = False) -> Iterator[Path]:
    """Yield these places, with each one that holds a hidden folder replaced by its other entries.

    A link among these entries is yielded for a sandbox that makes links itself; a sandbox that allows a path allows
    what it leads to. Raise MachineError if such a place cannot be listed.
    """
    closed = {os.path.realpath(place) for place in hidden}
    around = {str(parent) for folder in closed for parent in Path(folder).parents}

    def shown(place: Path, real: str) -> Iterator[Path]:
        if real not in around:
            yield place
            return
        try:
            with os.scandir(real) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise MachineError(
                f"{real} holds files that no script may see, and cannot be listed ({error.strerror}); make it readable"
            ) from None
        for entry in entries:
            if not entry.is_symlink():
                yield from () if entry.path in closed else shown(Path(entry.path), entry.path)
            elif links:
                yield Path(entry.path)

    for place in places:
        yield from (place,) if links and place.is_symlink() else shown(place, os.path.realpath(place))


def files_around(hidden: Sequence[Path]) -> tuple[Path, ...]:
    """Return all files of the system and of Python that a sandbox shows, around the hidden folders."""
    return (*system_around(hidden), *python_around(hidden))


def system_around(hidden: Sequence[Path], *, links: bool = False) -> Iterator[Path]:
    """Yield the files of the system around the hidden folders."""
    return around_hidden(system_places(links), hidden, links=links)


@cache  # a place that appears later is shown in the next process; what lies in a place is listed for each sandbox
def system_places(links: bool) -> tuple[Path, ...]:
    """Return the places of the system that a sandbox shows, and what links lead there."""
    found = [path for pattern in SYSTEM for path in Path("/").glob(pattern.lstrip("/"))]
    for folder in map(Path, LIBRARIES):
        if not folder.is_symlink():
            found += _libraries(folder)
        elif links:  # /lib is a link on most systems; what it leads to is listed as well
            found.append(folder)
    return tuple(found)


def _libraries(folder: Path) -> Iterator[Path]:
    """Yield a folder if there are libraries directly in it; else what compilers and libraries use of its folders."""
    if any(path for pattern in LIBRARY for path in folder.glob(pattern)):
        yield folder
    else:
        for pattern in OF_LIBRARIES:
            yield from folder.glob(pattern)


def python_around(hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield python_places() around the hidden folders."""
    return around_hidden(python_places(tuple(hidden)), hidden)


@cache
def python_places(hidden: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return the parts of this interpreter, its packages and $LD_LIBRARY_PATH: read-only in every sandbox.

    A place inside another one of them, or inside the system, is left out, unless it lies in a hidden part of that one.
    """
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    named = [part for prefix in prefixes for pattern in PYTHON_PARTS for part in prefix.glob(pattern)]
    named += [part for prefix in prefixes for name in ("lib", "lib64") for part in _libraries(prefix / name)]
    named += [*_standard_library(), *_packages()]
    named += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    named += _steps_to(Path(sys.executable))
    # the path must have no `..`, since the folder before it may not be visible in the sandbox
    spelled = {Path(os.path.normpath(path.absolute())) for path in named if path.exists()}
    spelled |= {path.resolve() for path in named if path.exists()}
    home = home_folder()
    # no place may show the whole home
    places = {place for place in spelled if home is None or not home.is_relative_to(place.resolve())}
    system, closed = set(system_places(links=True)), [folder.resolve() for folder in hidden]
    every = places | system

    def is_shown(place: Path) -> bool:
        within = [other for other in place.parents if other in every]
        between = [folder for folder in closed if place.is_relative_to(folder)]
        return any(not any(other in folder.parents for folder in between) for other in within)

    return tuple(sorted(place for place in places - system if not is_shown(place)))


def _standard_library() -> list[Path]:
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]


def _packages() -> list[Path]:
    """Return the folders of packages that this interpreter imports from."""
    folders = map(Path, sys.path)  # a distribution's own packages may have no *.dist-info
    return [folder for folder in folders if folder.name.endswith("-packages") or any(folder.glob("*.dist-info"))]


def unasked() -> tuple[Path, ...]:
    """Return folders in these places that no run asks for: many files, each of which would have to be in memory."""
    packages = _packages()
    found = [folder / name for folder in (*_standard_library(), *map(Path, LIBRARIES)) for name in UNASKED]
    found += [folder / name for folder in packages for name in UNASKED_PACKAGES]
    found += [path for name in UNASKED_HEADERS for path in Path("/usr/include").glob(name)]
    return tuple(sorted({path.resolve() for path in found if path.is_dir()} - {path.resolve() for path in packages}))


@cache
def places_of(python: str, hidden: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return where another interpreter and its packages are, without places that would show a hidden folder.

    Raise NightError where it does not run.
    """
    code = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, *sys.path[1:]]))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, timeout=START_S, check=True)
        named = {Path(place) for place in json.loads(done.stdout)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NightError(f"--python {python} does not run ({error}); name another, as .venv/bin/python") from error
    named -= {Path("/usr"), Path("/usr/local")}  # of these, system_places() has what programs need
    shown = sorted(place for place in named if place.exists() and not any(_holds(place, folder) for folder in hidden))
    seen = (*shown, *python_places(hidden))  # a link in these cannot be shown a second time
    return (*shown, *(step for step in _steps_to(Path(python)) if not any(map(step.is_relative_to, seen))))


def check_shown(places: Iterable[Path], hidden: Iterable[Path]) -> None:
    """Raise NightError for a path that is not there, or that would show a hidden folder."""
    for place in places:
        if not place.exists():
            raise NightError(f"--read {place} names nothing that is there; check it")
        for folder in hidden:
            if _holds(place, folder):
                raise NightError(f"--read {place} would show all of {folder} to the script; name what it needs of that")


def _holds(place: Path, folder: Path) -> bool:
    return folder.resolve().is_relative_to(place.resolve())


def _steps_to(step: Path) -> Iterator[Path]:
    """Yield every link from an interpreter to the real one: each must be visible to be followed."""
    while step.is_symlink():
        yield from (step, step.parent.resolve() / step.name)
        step = step.parent / step.readlink()
    yield step


def gpu_devices() -> tuple[Path, ...]:
    """Return the device files of this machine's GPUs."""
    return tuple(sorted(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)))


def counters() -> tuple[Path, ...]:
    """Return the files and folders of /proc and /sys to be hidden within what is shown, none of them within another."""
    counting = {path for name in COUNTING for path in Path("/").glob(name)}
    counting |= {Path(entry.path) for entry in _entries("/proc") if not (entry.name.isdecimal() or entry.name in ASKED)}
    devices = Path("/sys/devices").resolve()
    for kind in os.scandir("/sys/class"):
        # the plain files of a class are settings and switches; its links lead to devices
        counting |= {Path(entry.path) for entry in _entries(kind.path) if entry.is_file()}
    for link in (*Path("/sys/class/block").glob("*"), *Path("/sys/class/net").glob("*")):
        device = Path(os.path.realpath(link))
        # the parent folder is "block" or "net", or the disk of a partition; it holds the device's siblings, too
        if device.is_dir() and len(device.parts) > len(devices.parts) + 2 and device.is_relative_to(devices):
            counting.add(device.parent)
    return tuple(path for path in sorted(counting) if counting.isdisjoint(path.parents))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the files and folders in a folder, without its links; none if there is no such folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.is_symlink()]
    return []
