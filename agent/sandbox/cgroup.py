"""Limits that the kernel holds a whole tree of processes to, where this user may make control groups.

That is mostly root, in a container or without one: a desktop user's group belongs to the system. Under version 2 the
own group must also be free to hand its controllers down, which the kernel allows to the root of the tree alone as
long as processes live in it. They are not moved out of the way: among them are the user's shell or a container's
first process, a killed harness would leave them moved, and whoever made the group, systemd or a container's runtime,
could start nothing more in it. Where no group can be made there is none, and somebody else has to watch.
"""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TREE, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CONTROLLERS = frozenset({"memory", "pids"})
KILL_S, REMOVE_S, POLL_S = 5.0, 1.0, 0.005
NAME = "nightshift"
NEARLY = 0.95  # of a limit: an allocation that fails may be a large one

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """One group of processes: two folders under version 1, where every controller has a tree of its own."""

    memory: Path
    pids: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))

    def join(self) -> None:
        """Moves the calling process: for a child, before it becomes its command."""
        for folder in self.folders:
            _write(folder / "cgroup.procs", 0)

    def kill(self) -> None:
        """Ends all that is in the group; gives up after KILL_S on what the kernel cannot end, such as a stuck driver.

        A bomb that forks meanwhile is not faster: it may start nothing more.
        """
        with suppress(OSError):
            _write(self.pids / "pids.max", 0)
        with suppress(OSError):
            _write(self.pids / "cgroup.kill", 1)
        deadline = time.monotonic() + KILL_S
        while (members := self._members()) and time.monotonic() < deadline:
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed inside for memory; to be asked before the group is gone."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(map(str.split, _lines(self.memory / name)))
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def at_its_limit(self) -> bool:
        """Whether what was killed had met the group's own limit, and not that of a group around it or the machine's."""
        with suppress(OSError):  # version 1, whose counts of failures stay at nothing on many kernels
            most_bytes = int((self.memory / "memory.max_usage_in_bytes").read_text())
            return most_bytes > NEARLY * int((self.memory / "memory.limit_in_bytes").read_text())
        with suppress(OSError):
            counts = dict(map(str.split, _lines(self.memory / "memory.events")))
            return int(counts.get("oom", 1)) > 0
        return True

    def filled_bytes(self) -> int | None:
        """Memory that its processes fill; pages of files, such as the corpus, do not count: they can be dropped.

        The kernel's own record of the peak is of no use here: it holds those pages. None where there is no telling.
        """
        with suppress(OSError, ValueError, KeyError):
            sizes = {name: int(size) for name, size in map(str.split, _lines(self.memory / "memory.stat"))}
            if "anon" in sizes:
                return sizes["anon"] + sizes["shmem"]
            return sizes["total_rss"] + sizes["total_shmem"]  # version 1
        return None

    def _members(self) -> set[int]:
        """The processes inside that still run."""
        found: set[int] = set()
        for folder in self.folders:
            with suppress(OSError):
                found |= set(map(int, (folder / "cgroup.procs").read_text().split()))
        return found - {0}  # a process that we cannot see; as a signal's target it would mean our own


@contextmanager
def group(
    memory_bytes: int, processes: int, *, tree: Path = TREE, membership: Path = MEMBERSHIP
) -> Iterator[Group | None]:
    """A group below this process's own; None where none can be made. What is left in it at the end is killed.

    The memory is that of all processes together, and swap does not add to it. Threads count as processes.
    """
    with ExitStack() as undo:
        try:
            made = _make(_homes(tree, membership), memory_bytes, processes, undo)
        except OSError:
            undo.close()
            made = None
        yield made


def _make(homes: tuple[Path, Path], memory_bytes: int, processes: int, undo: ExitStack) -> Group:
    name = f"{NAME}-{os.getpid()}-{next(_numbers)}"
    made = Group(*(home / name for home in homes))
    for folder in made.folders:
        _sweep(folder.parent)
        folder.mkdir()
        undo.callback(_remove, folder)
    undo.callback(made.kill)
    _write(made.pids / "pids.max", processes)
    _limit_memory(made.memory, memory_bytes)
    return made


def _limit_memory(folder: Path, memory_bytes: int) -> None:
    if (folder / "memory.limit_in_bytes").exists():  # version 1, whose limit on both may not be below that on memory
        _write(folder / "memory.limit_in_bytes", memory_bytes)
        swap, most = "memory.memsw.limit_in_bytes", memory_bytes
    else:
        _write(folder / "memory.max", memory_bytes)
        swap, most = "memory.swap.max", 0
    with suppress(OSError):  # a kernel that does not count swap
        _write(folder / swap, most)


# ---- where groups are made -------------------------------------------------------------------------------------------


def _homes(tree: Path, membership: Path) -> tuple[Path, Path]:
    """This process's own folders in the trees of memory and of pids; raises OSError where they are of no use."""
    lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    own = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    if own.keys() >= CONTROLLERS:  # version 1, perhaps beside a tree of version 2 that has other controllers
        return _own_folder(tree / "memory", own["memory"]), _own_folder(tree / "pids", own["pids"])
    home = _own_folder(tree, own.get("", "/"))
    if CONTROLLERS - _words(home / "cgroup.controllers"):
        raise OSError(f"{home} has no controllers of memory and processes")
    if CONTROLLERS - _words(home / "cgroup.subtree_control"):
        _write(home / "cgroup.subtree_control", "+memory +pids")
    return home, home


def _own_folder(mount: Path, path: str) -> Path:
    """Inside a container the path may be that of the machine, of which the mount shows the container's part alone."""
    own = mount / path.lstrip("/")
    return own if own.is_dir() and ".." not in own.parts else mount


def _sweep(home: Path) -> None:
    """Removes what a killed harness left. A group with processes in it stays: the kernel removes only empty ones."""
    for folder in home.glob(f"{NAME}-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdecimal() and not _exists(int(pid)):
            with suppress(OSError):
                folder.rmdir()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _remove(folder: Path) -> None:
    """The last process may be gone from the list a moment before it is gone."""
    deadline = time.monotonic() + REMOVE_S
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_S)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _words(file: Path) -> set[str]:
    return set(file.read_text().split())


def _write(file: Path, value: object) -> None:
    file.write_text(str(value))
