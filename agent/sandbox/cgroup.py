"""Make a control group, whose limits of memory and processes the kernel enforces for a whole tree of processes.

Mostly only root may do this, inside or outside a container: a desktop user's group belongs to the system. Under
version 2 this process's group must also be able to delegate its controllers, and while processes live in a group the
kernel allows that at the root of the tree alone. We do not move those processes: they include the user's shell or the
container's first process, a killed harness would leave them moved, and systemd or the container's runtime could start
nothing more in the group. If no group can be made, agent/sandbox/limits.py watches the processes instead.
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
NEARLY = 0.95  # share of a limit that counts as reaching it: the allocation that failed may have been a large one

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """Name the folders of one group: two under version 1, where each controller has its own tree."""

    memory: Path
    pids: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))

    def join(self) -> None:
        """Move the calling process into the group; a child does this before it becomes its command."""
        for folder in self.folders:
            _write(folder / "cgroup.procs", 0)

    def kill(self) -> None:
        """Kill every process in the group; give up after KILL_S on those that the kernel cannot end (a stuck driver).

        A process cannot escape by forking: the group may start no process any more.
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
        """Return whether the kernel has killed a process of the group for memory; ask before the group is removed."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(map(str.split, _lines(self.memory / name)))
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def at_its_limit(self) -> bool:
        """Return whether the kill came from the group's own limit, not from an outer group's or the machine's."""
        with suppress(OSError):  # version 1, whose failure counts stay at zero on many kernels
            most_bytes = int((self.memory / "memory.max_usage_in_bytes").read_text())
            return most_bytes > NEARLY * int((self.memory / "memory.limit_in_bytes").read_text())
        with suppress(OSError):
            counts = dict(map(str.split, _lines(self.memory / "memory.events")))
            return int(counts.get("oom", 1)) > 0
        return True

    def filled_bytes(self) -> int | None:
        """Return the bytes of memory that its processes fill; None if the kernel does not say.

        Pages of files, such as the corpus, do not count: the kernel can drop them. Its own peak value includes them.
        """
        with suppress(OSError, ValueError, KeyError):
            sizes = {name: int(size) for name, size in map(str.split, _lines(self.memory / "memory.stat"))}
            if "anon" in sizes:
                return sizes["anon"] + sizes["shmem"]
            return sizes["total_rss"] + sizes["total_shmem"]  # version 1
        return None

    def _members(self) -> set[int]:
        """Return the process ids in the group."""
        found: set[int] = set()
        for folder in self.folders:
            with suppress(OSError):
                found |= set(map(int, (folder / "cgroup.procs").read_text().split()))
        return found - {0}  # 0 means a process that we cannot see; a signal to 0 would reach our own group


@contextmanager
def group(
    memory_bytes: int, processes: int, *, tree: Path = TREE, membership: Path = MEMBERSHIP
) -> Iterator[Group | None]:
    """Make a group below this process's own for the `with` block; None if that is impossible.

    memory_bytes limits all its processes together, swap included; `processes` limits processes and threads together. At
    the end all processes in the group are killed.
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
    if (folder / "memory.limit_in_bytes").exists():  # version 1: memory plus swap may not be limited below memory
        _write(folder / "memory.limit_in_bytes", memory_bytes)
        swap, most = "memory.memsw.limit_in_bytes", memory_bytes
    else:
        _write(folder / "memory.max", memory_bytes)
        swap, most = "memory.swap.max", 0
    with suppress(OSError):  # a kernel that does not count swap
        _write(folder / swap, most)


# ---- where groups are made -------------------------------------------------------------------------------------------


def _homes(tree: Path, membership: Path) -> tuple[Path, Path]:
    """Return this process's folders in the memory tree and the pids tree; raise OSError if they cannot be used."""
    lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    own = {controller: path for _, controllers, path in lines for controller in controllers.split(",")}
    if own.keys() >= CONTROLLERS:  # version 1, perhaps beside a version 2 tree with other controllers
        return _own_folder(tree / "memory", own["memory"]), _own_folder(tree / "pids", own["pids"])
    home = _own_folder(tree, own.get("", "/"))
    if CONTROLLERS - _words(home / "cgroup.controllers"):
        raise OSError(f"{home} has no controllers of memory and processes")
    if CONTROLLERS - _words(home / "cgroup.subtree_control"):
        _write(home / "cgroup.subtree_control", "+memory +pids")
    return home, home


def _own_folder(mount: Path, path: str) -> Path:
    """Return the folder of a group, or the mount itself in a container that shows only its own part of the tree."""
    own = mount / path.lstrip("/")
    return own if own.is_dir() and ".." not in own.parts else mount


def _sweep(home: Path) -> None:
    """Remove the empty groups of harnesses that were killed; the kernel keeps a group that still has processes."""
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
        pass  # it belongs to another user
    return True


def _remove(folder: Path) -> None:
    """Remove a group's folder, and retry for REMOVE_S: a process leaves the list a moment before it ends."""
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
