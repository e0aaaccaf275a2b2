"""Build the command that runs a process in bubblewrap: its own namespaces of files, processes and network."""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox import seccomp
from agent.sandbox.places import View, counters, gpu_devices, python_around, system_around

TMPFS_BYTES = 64 << 20  # size of /tmp and of /dev/shm, which fill memory; TMPDIR is on disk, in the run's folder
# Root may write these without any capability, and could start a program outside the box through
# /proc/sys/kernel/core_pattern.
SWITCHES = tuple(Path("/proc") / name for name in ("sys", "bus", "driver"))
UNFILTERED = "notes to a later run in the kernel: in its keyrings, and in which pages of files are in its memory"
# A newer bubblewrap can also forbid user namespaces inside, which open most of the kernel's attack surface. Root in a
# container may not be allowed to make one, and then does not need one.
ISOLATION = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Give a command its own namespaces: paths that are not mounted do not exist in it."""

    program: str
    isolation: tuple[str, ...]
    name = "bubblewrap"

    @classmethod
    def on_this_kernel(cls, program: str) -> "Bubblewrap | str":
        """Return bubblewrap with the most isolation that works here, or a sentence if it does not work."""
        error = ""
        for isolation in ISOLATION:
            box = cls(program, isolation)
            trial = [*box._namespaces(), "--ro-bind", "/", "/", "--", "/bin/true"]
            done = subprocess.run(trial, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return box
            error = done.stderr.strip().partition("\n")[0]
        return f"bubblewrap may not open namespaces here ({error}); SECURITY.md says what Ubuntu and containers need"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return () if seccomp.available() else (UNFILTERED,)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        memory = ["--size", str(TMPFS_BYTES), "--tmpfs"]
        mounts = ["--proc", "/proc", *_read_only(SWITCHES), "--dev", "/dev", *memory, "/dev/shm", *memory, "/tmp"]
        for place in system_around(view.hidden, links=True):
            # on most systems /bin and similar folders are links into /usr
            is_link = place.is_symlink()
            mounts += ["--symlink", str(place.readlink()), str(place)] if is_link else _read_only([place])
        mounts += _read_only(sorted(python_around(view.hidden)))
        in_memory = ["/dev", "/"]
        for path in counters():
            is_folder = path.is_dir()
            mounts += ["--tmpfs", str(path)] if is_folder else ["--ro-bind", "/dev/null", str(path)]
            in_memory[:0] = [str(path)] * is_folder
        mounts += _read_only(view.readable)
        for device in map(str, gpu_devices()):
            mounts += ["--dev-bind-try", device, device]
        mounts += ["--bind", str(view.folder), str(view.folder), "--chdir", str(view.folder)]
        for place_in_memory in in_memory:  # a script must not fill it
            mounts += ["--remount-ro", place_in_memory]
        return [*_filtered(view), *self._namespaces(), *mounts, "--", *command]

    def _namespaces(self) -> list[str]:
        # no new cgroup namespace: libraries read their share of cores and memory there
        unshared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        return [self.program, *self.isolation, *unshared, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]


def _read_only(places: Iterable[Path]) -> list[str]:
    return [word for place in places for word in ("--ro-bind-try", str(place), str(place))]


def _filtered(view: View) -> list[str]:
    """Return the start of a command that adds a filter of system calls, or [] if this machine has none."""
    pinned = [seccomp.PINNED] if view.pinned else []
    return [sys.executable, "-I", "-S", seccomp.__file__, *pinned] if seccomp.available() else []
