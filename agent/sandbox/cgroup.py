"""Make a control group (version 2), whose limits the kernel enforces for a whole tree of processes.

Mostly only root may do this, inside or outside a container: a desktop user's group belongs to the system. This
process's group must also be able to delegate its controllers, and while processes live in a group the kernel allows
that at the root of the tree alone. We do not move those processes: they include the user's shell or the container's
first process, a killed harness would leave them moved, and systemd or the container's runtime could start nothing more
in the group. If no group can be made, agent/sandbox/watch.py watches the processes instead.
"""

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TREE, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CONTROLLERS = frozenset({"memory", "pids"})
REMOVE_S, POLL_S = 5.0, 0.005
NAME = "nightshift"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """Name the folder of one group."""

    folder: Path

    def join(self) -> None:
        """Move the calling process into the group; a child does this before it becomes its command."""
        (self.folder / "cgroup.procs").write_text("0")

    def kill(self) -> None:
        """Kill every process in the group, which cannot escape by forking: the group may start no process any more.

        Kernels before 5.14 have no cgroup.kill; there the keeper alone ends the processes.
        """
        for name, value in (("pids.max", "0"), ("cgroup.kill", "1")):
            with suppress(OSError):
                (self.folder / name).write_text(value)

    def out_of_memory(self) -> bool:
        """Return whether the kernel has killed a process of the group for memory; ask before the group is removed."""
        return self._counts("memory.events").get("oom_kill", 0) > 0

    def at_its_limit(self) -> bool:
        """Return whether the kill came from the group's own limit, not from an outer group's or the machine's."""
        return self._counts("memory.events").get("oom", 0) > 0

    def filled_bytes(self) -> int | None:
        """Return the bytes of memory that its processes fill; None if the kernel does not say.

        Pages of files, such as the corpus, do not count: the kernel can drop them. Its own peak value includes them.
        """
        sizes = self._counts("memory.stat")
        return sizes["anon"] + sizes["shmem"] if sizes else None

    def _counts(self, name: str) -> dict[str, int]:
        """Return the numbers in a file of lines `oom_kill 2`; none where there is no such file."""
        with suppress(OSError):
            lines = (self.folder / name).read_text().splitlines()
            return {key: int(value) for key, value in map(str.split, lines)}
        return {}


@contextmanager
def group(
    memory_bytes: int, processes: int, *, tree: Path = TREE, membership: Path = MEMBERSHIP
) -> Iterator[Group | None]:
    """Make a group below this process's own for the `with` block; None if that is impossible.

    memory_bytes limits all its processes together, without swap; `processes` limits processes and threads together. At
    the end all processes in the group are killed.
    """
    with ExitStack() as undo:
        try:
            made = _make(_home(tree, membership), memory_bytes, processes, undo)
        except OSError:
            undo.close()
            made = None
        yield made


def _make(home: Path, memory_bytes: int, processes: int, undo: ExitStack) -> Group:
    _sweep(home)
    made = Group(home / f"{NAME}-{os.getpid()}-{next(_numbers)}")
    made.folder.mkdir()
    undo.callback(_remove, made.folder)
    undo.callback(made.kill)
    (made.folder / "pids.max").write_text(str(processes))
    (made.folder / "memory.max").write_text(str(memory_bytes))
    with suppress(OSError):  # a kernel that does not count swap
        (made.folder / "memory.swap.max").write_text("0")
    return made


def _home(tree: Path, membership: Path) -> Path:
    """Return this process's own group; raise OSError if none can be made in there."""
    lines = (line.split(":", 2) for line in membership.read_text().splitlines())
    own = next((path for number, _, path in lines if number == "0"), "/")
    home = tree / own.lstrip("/")
    if not home.is_dir() or ".." in home.parts:
        home = tree  # a container that shows only its own part of the tree
    if CONTROLLERS - _words(home / "cgroup.controllers"):
        raise OSError(f"{home} has no controllers of memory and processes")
    if CONTROLLERS - _words(home / "cgroup.subtree_control"):
        (home / "cgroup.subtree_control").write_text("+memory +pids")
    return home


def _words(file: Path) -> set[str]:
    return set(file.read_text().split())


def _sweep(home: Path) -> None:
    """Remove the empty groups of harnesses that were killed; the kernel keeps a group that still has processes."""
    for folder in home.glob(f"{NAME}-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            with suppress(OSError):
                folder.rmdir()


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
