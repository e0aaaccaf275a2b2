"""Choose the sandbox of this machine and build the command that runs a training or scoring process in it.

Linux uses bubblewrap, or Landlock where bubblewrap does not work; a Mac uses Seatbelt. A path that is not listed here
is absent (bubblewrap) or refused (the others): home, keys, .git, the harness, other runs, the network. A process in a
box starts without secrets in its environment, because /proc shows that environment to every process beside it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agent.errors import MachineError
from agent.files import throwaway_folder
from agent.sandbox import landlock, seatbelt, seccomp
from agent.sandbox.counters import ASKED, LIMITS, MAKES_DISKS, counters
from agent.sandbox.environment import boxed_env

TMPFS_BYTES = 64 << 20  # size of /tmp and of /dev/shm, which fill memory; TMPDIR is on disk, in the run's folder
PROBE_S = 120  # enough for a first import of MLX from a slow disk

# Programs, libraries, compilers, and the facts about the machine that libraries read. /etc, /home, /opt, /run and /var
# are not shown as a whole.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
ABOUT = ("/sys/devices", "/sys/bus", "/sys/class", *LIMITS, "/sys/module/nvidia", "/sys/module/nvidia_uvm")
# Root may write these without any capability, and could start a program outside the box through
# /proc/sys/kernel/core_pattern.
SWITCHES = tuple(f"/proc/{name}" for name in ("sys", "bus", "driver"))
GPU_DEVICES = ("nvidia*", "nvidia-limits/*", "dri/renderD*")
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
HOMEBREW = tuple(f"/opt/homebrew/{part}" for part in ("Cellar", "Frameworks", "lib", "opt"))
PYTHON_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
UNFILTERED = "notes to a later run in the kernel: in its keyrings, and in which pages of files are in its memory"
MAC_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/share", "/bin", "/sbin", "/System/Library", "/Library/Developer", *HOMEBREW)


class Mode(StrEnum):
    """Name the values of --sandbox."""

    AUTO = "auto"  # the strongest that works here
    REQUIRE = "require"  # bubblewrap or Seatbelt, else refuse
    OFF = "off"


@dataclass(frozen=True, slots=True)
class View:
    """List the absolute paths that one process sees besides the system and Python."""

    folder: Path  # its working folder, the only one it may write
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()  # folders inside visible ones that must stay hidden
    pinned: bool = False  # whether it must keep to the cores that it starts with

    @property
    def keeps(self) -> list[str]:
        """Return the word by which the filter of system calls is told of it."""
        return [seccomp.PINNED] if self.pinned else []


class Box(Protocol):
    """Wrap a command so that it runs in a sandbox."""

    @property
    def name(self) -> str:
        """Return the name that `run` and `doctor` print."""
        ...

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Return, in plain words, the things that a script can still do in this box."""
        ...

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        """Return the command that runs this command in the box."""
        ...


def choose(mode: Mode) -> Box:
    """Return the box for this machine; raise MachineError if `require` cannot be met.

    Each candidate has to run MLX inside, on the GPU if there is one, so the chosen box is known to work.
    """
    if mode is Mode.OFF:
        return Open("switched off by --sandbox off")
    reasons = []
    for candidate in candidates():
        reason = candidate if isinstance(candidate, str) else why_unfit(candidate)
        if reason is None:
            assert not isinstance(candidate, str)
            return candidate
        reasons.append(reason)
        if mode is Mode.REQUIRE:
            raise MachineError(f"--sandbox require: {reason}; repair it, or choose --sandbox auto")
    return Open("; ".join(reasons))


def candidates() -> Iterator["Box | str"]:
    """Yield the boxes of this platform, strongest first; in place of an unusable one yield a sentence that says why."""
    if sys.platform == "darwin":
        yield seatbelt.unusable() or Seatbelt()
    elif sys.platform == "linux":
        program = shutil.which("bwrap")
        yield Bubblewrap.on_this_kernel(program) if program else "bubblewrap is not installed (apt install bubblewrap)"
        abi = landlock.abi()
        yield Landlock(abi) if abi else "this kernel has no Landlock"
    else:
        yield f"there is no sandbox for {sys.platform}"


def why_unfit(box: Box) -> str | None:
    """Return None if a process in the box can use MLX, else a sentence with its error."""
    with throwaway_folder() as folder:
        view = View(folder)
        (view.folder / "tmp").mkdir()
        command = box.wrap([sys.executable, "-c", "import numpy, mlx.core as mx; mx.eval(mx.zeros(1))"], view)
        env = boxed_env(view.folder, data="")
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{box.name} does not work here ({error})"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else f"{box.name} does not work here ({lines[-1]})"


@dataclass(frozen=True, slots=True)
class Open:
    """Run a command without a box, with the user's rights. Secrets are still removed from its environment."""

    why: str

    @property
    def name(self) -> str:
        return f"no sandbox: {self.why}"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return ("scripts run with your rights: files, network, processes",)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        return list(command)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Give a command its own namespaces of files, processes and network: unmounted paths do not exist in it."""

    program: str
    isolation: tuple[str, ...]

    # A newer bubblewrap can also forbid user namespaces inside, which open most of the kernel's attack surface. Root in
    # a container may not be allowed to make one, and then does not need one.
    ISOLATION = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))  # fmt: skip

    @classmethod
    def on_this_kernel(cls, program: str) -> "Bubblewrap | str":
        """Return bubblewrap with the most isolation that works here, or a sentence if it does not work."""
        said = ""
        for isolation in cls.ISOLATION:
            box = cls(program, isolation)
            trial = subprocess.run(
                [*box._namespaces(), "--ro-bind", "/", "/", "--", "/bin/true"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if trial.returncode == 0:
                return box
            said = trial.stderr.strip().partition("\n")[0]
        return f"bubblewrap may not open namespaces here ({said}); SECURITY.md says what Ubuntu and containers need"

    @property
    def name(self) -> str:
        return "bubblewrap"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return () if seccomp.available() else (UNFILTERED,)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        memory = ["--size", str(TMPFS_BYTES), "--tmpfs"]
        mounts = ["--proc", "/proc", *_read_only(map(Path, SWITCHES))]
        mounts += ["--dev", "/dev", *memory, "/dev/shm", *memory, "/tmp"]
        hidden = _hidden_in_system(view)
        mounts += _system_mounts(hidden, _python_in(view))
        counting = {path: path.is_dir() for path in counters()}
        for path, is_folder in counting.items():
            mounts += ["--tmpfs", str(path)] if is_folder else ["--ro-bind", "/dev/null", str(path)]
        mounts += _read_only(view.readable)  # after the hidden folders: most of these lie in one
        for device in gpu_devices():
            mounts += ["--dev-bind-try", str(device), str(device)]
        mounts += ["--bind", str(view.folder), str(view.folder), "--chdir", str(view.folder)]
        emptied = (path for path, is_folder in counting.items() if is_folder)
        for place in (*hidden, *emptied, Path("/dev"), Path("/")):  # these are in memory: a script must not fill them
            mounts += ["--remount-ro", str(place)]
        return [*self._filtered(view), *self._namespaces(), *mounts, "--", *command]

    def _filtered(self, view: View) -> list[str]:
        """Return the start of a command that adds a filter of system calls, or [] if this machine has none."""
        return [sys.executable, "-I", "-S", seccomp.__file__, *view.keeps] if seccomp.available() else []

    def _namespaces(self) -> list[str]:
        # no new cgroup namespace: libraries read their share of cores and memory there
        unshared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        return [self.program, *self.isolation, *unshared, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]


@dataclass(frozen=True, slots=True)
class Landlock:
    """Let the kernel refuse every path that is not listed; for machines that forbid user namespaces."""

    abi: int

    @property
    def name(self) -> str:
        return f"Landlock (ABI {self.abi})"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return landlock.uncovered(self.abi)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        devices = (*(Path("/dev") / name for name in PLAIN_DEVICES), *gpu_devices())
        system = (Path(place) for place in (*SYSTEM, *SETTINGS, *ABOUT, *(f"/proc/{name}" for name in sorted(ASKED))))
        seen = _around_hidden([*system, *_python_in(view)], replace(view, hidden=(*view.hidden, MAKES_DISKS)))
        rules = {
            "read": [str(place) for place in (*seen, *view.readable)],
            "write": [str(view.folder), "/proc/self"],  # CUDA names its threads there, and fails if it may not
            "devices": [str(device) for device in devices],
        }
        # -I and -S: no code of the user's environment may run before the rules hold
        return [sys.executable, "-I", "-S", landlock.__file__, json.dumps(rules), *view.keeps, *command]


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """Run a command in macOS's sandbox under our own profile: the profiles of coding agents stop MLX from starting."""

    @property
    def name(self) -> str:
        return "Seatbelt"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return ("unverified on a Mac", "memory is watched, not limited by the kernel")

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        seen = _around_hidden([*map(Path, MAC_SYSTEM), *_python_in(view)], view)
        return seatbelt.wrap(seatbelt.profile([*seen, *view.readable], [view.folder]), command)


def _system_mounts(hidden: Iterable[Path], python: Iterable[Path]) -> list[str]:
    """Return bubblewrap's options that mount the system and Python read-only.

    A hidden folder is mounted after the one that holds it, and Python's part of a hidden folder after that. On most
    systems /bin and similar folders are links into /usr; they stay links.
    """
    links = [place for place in SYSTEM if Path(place).is_symlink()]
    seen = [Path(place) for place in (*SYSTEM, *SETTINGS, *ABOUT) if place not in links]
    mounts = {place: ["--tmpfs", str(place)] for place in hidden}
    mounts |= {place: _read_only([place]) for place in (*seen, *python)}
    steps = [word for link in links for word in ("--symlink", str(Path(link).readlink()), link)]
    return steps + [word for place in sorted(mounts) for word in mounts[place]]


def _read_only(places: Iterable[Path]) -> list[str]:
    return [word for place in places for word in ("--ro-bind-try", str(place), str(place))]


def _hidden_in_system(view: View) -> tuple[Path, ...]:
    """Return the hidden folders that lie in the system or in Python, without those inside another one of them."""
    seen = [*map(Path, SYSTEM), *_python_in(view)]
    found = {place for place in _hidden(view) if any(_is_below(place, one) for one in seen)}
    return tuple(sorted(place for place in found if place.is_dir() and not any(_is_below(place, one) for one in found)))


def _around_hidden(places: Iterable[Path], view: View) -> Iterator[Path]:
    """Yield these places, with each one that holds a hidden folder replaced by its other entries.

    For boxes that can only allow paths, not hide them. Raise MachineError if such a folder cannot be listed.
    """
    for place in places:
        real, hidden = place.resolve(), _hidden(view)
        if not any(_is_below(one, real) for one in hidden):
            yield place
            continue
        try:
            inside = sorted(real.iterdir())
        except OSError as error:
            raise MachineError(
                f"{real} holds files that no script may see, and cannot be listed ({error.strerror}); make it readable"
            ) from None
        # leave links out: access depends on the path that a link leads to
        yield from _around_hidden([one for one in inside if one not in hidden and not one.is_symlink()], view)


def _hidden(view: View) -> list[Path]:
    return [place.resolve() for place in view.hidden]


def _python_in(view: View) -> Iterator[Path]:
    """Yield python_places(), and only Python's own parts of one that holds a hidden folder."""
    hidden = _hidden(view)
    for place in python_places(hidden):
        holds = any(one.is_relative_to(place.resolve()) for one in hidden)
        yield from (place / part for part in PYTHON_PARTS) if holds else [place]


def python_places(hidden: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders of this interpreter, its packages and $LD_LIBRARY_PATH: read-only in every box.

    A folder inside another one of them is left out, unless it lies in a hidden part of that one.
    """
    found = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    found += [Path(entry) for entry in sys.path if any(Path(entry).glob("*.dist-info"))]
    found += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    found += _steps_to_python()
    spelled = {spelling for path in found if path.exists() for spelling in (_normal(path), path.resolve())}
    home = Path.home().resolve()
    places = {place for place in spelled if not home.is_relative_to(place.resolve())}  # none may show the whole home
    seen = [*places, *(Path(place) for place in SYSTEM)]
    return tuple(sorted(place for place in places if not any(_shows(other, place, hidden) for other in seen)))


def _shows(other: Path, place: Path, hidden: Iterable[Path]) -> bool:
    between = (one for one in hidden if _is_below(one, other))
    return _is_below(place, other) and not any(place.is_relative_to(one) for one in between)


def _normal(path: Path) -> Path:
    """Return the absolute path without `..`: the folder before a `..` may not be visible in the box."""
    return Path(os.path.normpath(path.absolute()))


def _is_below(path: Path, other: Path) -> bool:
    return path != other and path.is_relative_to(other)


def _steps_to_python() -> Iterator[Path]:
    """Yield every link from sys.executable to the real interpreter: each must be visible to be followed."""
    step = Path(sys.executable)
    while step.is_symlink():
        yield from (step, step.parent.resolve() / step.name)
        step = step.parent / step.readlink()
    yield step


def gpu_devices() -> tuple[Path, ...]:
    """Return the device files of this machine's GPUs."""
    return tuple(sorted(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)))
