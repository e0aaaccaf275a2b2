"""The sandbox: what a training or scoring process may see and touch, and what holds it to that.

bubblewrap on Linux, Landlock where bubblewrap cannot be used, Seatbelt on a Mac. Everything that is not listed here is
absent (bubblewrap) or refused (the others): home, keys, .git, the harness, other runs, the network. A box starts with
an environment that holds no secret, because /proc shows a process's first environment to whatever runs beside it.
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
from agent.sandbox.counters import LIMITS, MAKES_DISKS, counters
from agent.sandbox.environment import boxed_env

TMPFS_BYTES = 64 << 20  # of /tmp and /dev/shm, which are memory; TMPDIR is on disk, in the run's own folder
PROBE_S = 120  # a first import of MLX on a slow disk

# Programs, libraries, compilers, and what libraries ask about the machine. Not /etc, /home, /opt, /run, /var as such.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
ABOUT = ("/sys/devices", "/sys/bus", "/sys/class", *LIMITS, "/sys/module/nvidia", "/sys/module/nvidia_uvm")
# Root may write these without any capability, and with /proc/sys/kernel/core_pattern run programs outside of the box.
SWITCHES = tuple(f"/proc/{name}" for name in ("sys", "bus", "driver"))
GPU_DEVICES = ("nvidia*", "nvidia-caps/*", "dri/renderD*")
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
HOMEBREW = tuple(f"/opt/homebrew/{part}" for part in ("Cellar", "Frameworks", "lib", "opt"))
PYTHON_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
UNFILTERED = "notes to a later run in the kernel: in its keyrings, and in which pages of files are in its memory"
MAC_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/share", "/bin", "/sbin", "/System/Library", "/Library/Developer", *HOMEBREW)


class Mode(StrEnum):
    AUTO = "auto"  # the strongest that works here
    REQUIRE = "require"  # bubblewrap or Seatbelt, else refuse
    OFF = "off"


@dataclass(frozen=True, slots=True)
class View:
    """What one process sees besides system and Python, by absolute paths."""

    folder: Path  # where it works: the one place it may write
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()  # what lies below a place that it sees, and is not for its eyes


class Box(Protocol):
    @property
    def name(self) -> str:
        """As `auto` and `doctor` print it."""
        ...

    @property
    def uncovered(self) -> tuple[str, ...]:
        """What this box does not keep a script from, in plain words."""
        ...

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        """The command that runs this command inside."""
        ...


def choose(mode: Mode) -> Box:
    """The box for this machine; raises MachineError where `require` cannot be met.

    Each candidate has to run MLX inside, on the GPU where there is one, so that what is chosen also works.
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
            raise MachineError(f"--sandbox require: {reason}; mend it, or choose --sandbox auto")
    return Open("; ".join(reasons))


def candidates() -> Iterator["Box | str"]:
    """The strongest first; a sentence stands for one that cannot even be tried."""
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
    """None where a process in the box can use MLX, else what it said."""
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
    """No box: the process has the user's rights. The environment is scrubbed all the same."""

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
    """Namespaces of its own for files, processes, network: what is not mounted is not there."""

    program: str
    isolation: tuple[str, ...]

    # A newer bubblewrap can also close user namespaces inside, the way to most of the kernel's attack surface. Root
    # in a container may not be allowed to open one at all, and then does not need one.
    ISOLATION = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))  # fmt: skip

    @classmethod
    def on_this_kernel(cls, program: str) -> "Bubblewrap | str":
        """With the most isolation that works; a sentence where none does."""
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
        return f"bubblewrap may not open namespaces here ({said}); README.md says what Ubuntu and containers want"

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
        mounts += _read_only(view.readable)  # in a hidden place, mostly
        for device in gpu_devices():
            mounts += ["--dev-bind-try", str(device), str(device)]
        mounts += ["--bind", str(view.folder), str(view.folder), "--chdir", str(view.folder)]
        emptied = (path for path, is_folder in counting.items() if is_folder)
        for place in (*hidden, *emptied, Path("/dev"), Path("/")):  # they are memory, too, and not to be filled
            mounts += ["--remount-ro", str(place)]
        return [*self._filtered(), *self._namespaces(), *mounts, "--", *command]

    def _filtered(self) -> list[str]:
        """The program that becomes bubblewrap with a filter of system calls, where there is one for this machine."""
        return [sys.executable, "-I", "-S", seccomp.__file__] if seccomp.available() else []

    def _namespaces(self) -> list[str]:
        # the cgroup namespace stays: libraries read the machine's share of cores and memory there
        unshared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        return [self.program, *self.isolation, *unshared, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]


@dataclass(frozen=True, slots=True)
class Landlock:
    """The kernel refuses what is not listed; for machines whose user namespaces are closed."""

    abi: int

    @property
    def name(self) -> str:
        return f"Landlock (ABI {self.abi})"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return landlock.uncovered(self.abi)

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        devices = (*(Path("/dev") / name for name in PLAIN_DEVICES), *gpu_devices())
        system = (Path(place) for place in (*SYSTEM, *SETTINGS, *ABOUT, "/proc"))
        seen = _around_hidden([*system, *_python_in(view)], replace(view, hidden=(*view.hidden, MAKES_DISKS)))
        rules = {
            "read": [str(place) for place in (*seen, *view.readable)],
            "write": [str(view.folder), "/proc/self"],  # CUDA names its threads there, and gives up where it may not
            "devices": [str(device) for device in devices],
        }
        # -I and -S: nothing of the user's environment may run before the rules hold
        return [sys.executable, "-I", "-S", landlock.__file__, json.dumps(rules), *command]


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """macOS's own sandbox under our own profile: those of other agents keep MLX from starting."""

    @property
    def name(self) -> str:
        return "Seatbelt"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return ("unverified on a Mac", "memory is watched, not capped")

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        seen = _around_hidden([*map(Path, MAC_SYSTEM), *_python_in(view)], view)
        return seatbelt.wrap(seatbelt.profile([*seen, *view.readable], [view.folder]), command)


def _system_mounts(hidden: Iterable[Path], python: Iterable[Path]) -> list[str]:
    """What is hidden in a place comes after it, and what Python needs of that once more after.

    /bin and its like are links into /usr on most systems: they stay what they are.
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
    """What would be seen with the system or with Python, a place within another one left out."""
    seen = [*map(Path, SYSTEM), *_python_in(view)]
    found = {place for place in _hidden(view) if any(_is_below(place, one) for one in seen)}
    return tuple(sorted(place for place in found if place.is_dir() and not any(_is_below(place, one) for one in found)))


def _around_hidden(places: Iterable[Path], view: View) -> Iterator[Path]:
    """These places, one that holds what is hidden replaced by all else that it holds: for boxes that only allow."""
    for place in places:
        real, hidden = place.resolve(), _hidden(view)
        if not any(_is_below(one, real) for one in hidden):
            yield place
            continue
        try:
            inside = sorted(real.iterdir())
        except OSError as error:
            raise MachineError(
                f"{real} holds what no script may see, and cannot be listed ({error.strerror})"
            ) from None
        # a link opens nothing of its own: it counts where it leads
        yield from _around_hidden([one for one in inside if one not in hidden and not one.is_symlink()], view)


def _hidden(view: View) -> list[Path]:
    return [place.resolve() for place in view.hidden]


def _python_in(view: View) -> Iterator[Path]:
    """python_places(), but of one that holds what is hidden no more than Python itself needs."""
    hidden = _hidden(view)
    for place in python_places(hidden):
        holds = any(one.is_relative_to(place.resolve()) for one in hidden)
        yield from (place / part for part in PYTHON_PARTS) if holds else [place]


def python_places(hidden: Sequence[Path] = ()) -> tuple[Path, ...]:
    """This interpreter, its packages, and the libraries the linker is told of: read-only in every box.

    One that is seen with another is left out, unless it lies in what is hidden of that.
    """
    found = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    found += [Path(entry) for entry in sys.path if any(Path(entry).glob("*.dist-info"))]
    found += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    found += _steps_to_python()
    spelled = {spelling for path in found if path.exists() for spelling in (_normal(path), path.resolve())}
    home = Path.home().resolve()
    places = {place for place in spelled if not home.is_relative_to(place.resolve())}  # none may bring all of it along
    seen = [*places, *(Path(place) for place in SYSTEM)]
    return tuple(sorted(place for place in places if not any(_shows(other, place, hidden) for other in seen)))


def _shows(other: Path, place: Path, hidden: Iterable[Path]) -> bool:
    between = (one for one in hidden if _is_below(one, other))
    return _is_below(place, other) and not any(place.is_relative_to(one) for one in between)


def _normal(path: Path) -> Path:
    """Without the .. of a link, for the folder that it leaves may not be there."""
    return Path(os.path.normpath(path.absolute()))


def _is_below(path: Path, other: Path) -> bool:
    return path != other and path.is_relative_to(other)


def _steps_to_python() -> Iterator[Path]:
    """The interpreter of a virtual environment is a link to a link …: each has to be there to be followed."""
    step = Path(sys.executable)
    while step.is_symlink():
        yield from (step, step.parent.resolve() / step.name)
        step = step.parent / step.readlink()
    yield step


def gpu_devices() -> tuple[Path, ...]:
    return tuple(sorted(path for pattern in GPU_DEVICES for path in Path("/dev").glob(pattern)))
