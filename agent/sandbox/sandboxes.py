"""Choose the sandbox of this machine and build the command that runs a training or scoring process in it.

Linux uses bubblewrap, or Landlock where bubblewrap does not work; a Mac uses Seatbelt. A path that is not listed here
is absent (bubblewrap) or refused (the others): home, keys, .git, the harness, other runs, the network. A process in a
sandbox starts without secrets in its environment, because /proc shows that environment to every process beside it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import MachineError
from agent.files import throwaway_folder
from agent.invocation import own_python
from agent.sandbox import in_memory, landlock, seccomp
from agent.sandbox.crash import why_crashed
from agent.sandbox.environment import TMP, sandbox_env
from agent.sandbox.places import (
    ASKED,
    FACTS,
    STORES,
    View,
    around_hidden,
    counters,
    files_around,
    gpu_devices,
    python_around,
    system_around,
    unasked,
)

PROBE_S = 120  # s; this suffices for a first import of MLX from a slow disk
# With -I and -S no code of the user's environment runs before the rules hold.
FILTERED = own_python("from agent.sandbox import seccomp; seccomp.main(sys.argv[1:])", "-I", "-S")
UNDER_RULES = own_python(
    "import json; from agent.sandbox import landlock; landlock.main(json.loads(sys.argv[1]), sys.argv[2:])", "-I", "-S"
)
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")


def choose(mode: str = "auto") -> "Sandbox":
    """Return the sandbox for this machine by a value of --sandbox; raise MachineError if `require` cannot be met.

    auto: the strongest that works here; require: bubblewrap or Seatbelt, else refuse; off: none. Each candidate has to
    run MLX inside, on the GPU if there is one, so the chosen sandbox is known to work.
    """
    if mode == "off":
        return Open("switched off by --sandbox off")
    reasons: dict[str, str] = {}
    for sandbox in candidates():
        if mode == "require" and isinstance(sandbox, Landlock):
            continue
        reason = why_unfit(sandbox)
        if reason is None:
            return sandbox
        reasons[sandbox.name] = reason
    why = "; ".join(reasons.values()) or f"there is none for {sys.platform}"
    if mode == "require":
        raise MachineError(f"--sandbox require: {why}; repair that as SECURITY.md says, or choose --sandbox auto")
    return Open(why)


def candidates() -> list["Sandbox"]:
    """Return the sandboxes of this platform, strongest first; some may not work here."""
    if sys.platform == "darwin":
        return [Seatbelt()]
    if sys.platform == "linux":
        program = shutil.which("bwrap") or "bwrap"
        return [*(Bubblewrap(program, isolation) for isolation in ISOLATION), Landlock(landlock.abi())]
    return []


def why_unfit(sandbox: "Sandbox") -> str | None:
    """Return None if a process in the sandbox can use MLX, else a sentence with its error."""
    with throwaway_folder() as folder:
        (folder / TMP).mkdir()
        code = "import numpy, mlx.core as mx; mx.eval(mx.zeros(1))"
        command, env = sandbox.wrap([sys.executable, "-P", "-c", code], View(folder)), sandbox_env(folder, data="")
        try:
            done = subprocess.run(command, env=env, capture_output=True, timeout=PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{sandbox.name} does not work here ({error})"
    if done.returncode == 0:
        return None
    why = why_crashed(done.stderr.decode(errors="replace"), done.returncode) or f"exit code {done.returncode}"
    return f"{sandbox.name} does not work here ({why})"


def bring_in(sandbox: "Sandbox", view: View) -> None:
    """Have all files that a sandbox of Linux shows in memory, so that none tells what another sandbox has read."""
    if isinstance(sandbox, Bubblewrap | Landlock) and in_memory.available():
        in_memory.HELD.bring_in(files_around(view.hidden), (*unasked(), *map(Path, STORES)))
        in_memory.read(view.readable)


@dataclass(frozen=True, slots=True)
class Open:
    """Run a command without a sandbox, with the user's rights. Secrets are still removed from its environment."""

    why: str
    uncovered = ("scripts run with your rights: files, network, processes",)

    @property
    def name(self) -> str:
        return f"no sandbox: {self.why}"

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        return list(command)


# ---- bubblewrap ------------------------------------------------------------------------------------------------------

TMPFS_BYTES = 64 << 20  # size of each of /tmp and /dev/shm, which fill memory; TMPDIR is on disk, in the run's folder
# Root may write these without any capability, and could start a program outside the sandbox through
# /proc/sys/kernel/core_pattern.
SWITCHES = tuple(Path("/proc") / name for name in ("sys", "bus", "driver"))
UNFILTERED = "notes to a later run in the kernel: in its keyrings, and in which pages of files are in its memory"
UNHELD = (
    "notes to a later run in which of the system's files are in memory (before Linux 5.14, with a Nix store, or with "
    "more files than /proc/sys/vm/max_map_count allows to be held)"
)
# A newer bubblewrap can also forbid user namespaces inside, which open most of the kernel's attack surface. Root in a
# container may not be allowed to make one, and then does not need one.
ISOLATION = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Give a command its own namespaces: paths that are not mounted do not exist in it."""

    program: str
    isolation: tuple[str, ...]
    name = "bubblewrap"

    @property
    def uncovered(self) -> tuple[str, ...]:
        filtered = () if seccomp.available() else (UNFILTERED,)
        return (*filtered, *_unheld())

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        memory = ["--size", str(TMPFS_BYTES), "--tmpfs"]
        mounts = ["--proc", "/proc", *_read_only(SWITCHES), "--dev", "/dev", *memory, "/dev/shm", *memory, "/tmp"]
        for place in (*system_around(view.hidden, links=True), *map(Path, FACTS)):
            if place.is_symlink():  # /bin and similar folders lead into /usr on most systems
                mounts += ["--symlink", str(place.readlink()), str(place)]
            else:
                mounts += _read_only([place])
        mounts += _read_only(sorted(python_around(view.hidden)))
        hidden = [path for path in (*counters(), *unasked()) if not any(map(path.is_relative_to, view.readable))]
        empty = [str(path) for path in hidden if path.is_dir()]
        for path in map(str, hidden):
            mounts += ["--tmpfs", path] if path in empty else ["--ro-bind", "/dev/null", path]
        mounts += _read_only(view.readable)
        for device in map(str, gpu_devices()):
            mounts += ["--dev-bind-try", device, device]
        mounts += ["--bind", str(view.folder), str(view.folder), "--chdir", str(view.folder)]
        for path in (*empty, "/dev", "/"):  # a script must not fill a folder in memory
            mounts += ["--remount-ro", path]
        return [*_filtered(), *self.namespaces(), *mounts, "--", *command]

    def namespaces(self) -> list[str]:
        """Return the start of a command that runs another one in its own namespaces."""
        # There is no new cgroup namespace: libraries read their share of cores and memory in the old one.
        unshared = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        return [self.program, *self.isolation, *unshared, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]


def _unheld() -> tuple[str, ...]:
    """Return the gap that is left where not all files that a sandbox shows are held in memory."""
    if in_memory.available() and not any(Path(store).is_dir() for store in STORES):
        _, files = in_memory.listed(map(os.path.realpath, files_around(())), set(map(str, unasked())))
        return () if len(files) <= in_memory.most_files() else (UNHELD,)
    return (UNHELD,)


def _read_only(places: Iterable[Path]) -> list[str]:
    return [word for place in places for word in ("--ro-bind-try", str(place), str(place))]


def _filtered() -> list[str]:
    """Return the start of a command that adds a filter of system calls, or [] if this machine has none."""
    return FILTERED if seccomp.available() else []


# ---- Landlock --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Landlock:
    """Let the kernel refuse every path that is not listed; for machines that forbid user namespaces."""

    abi: int

    @property
    def name(self) -> str:
        return f"Landlock (ABI {self.abi})"

    @property
    def uncovered(self) -> tuple[str, ...]:
        return (*landlock.uncovered(self.abi), *_unheld())

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        facts = around_hidden((*(Path("/proc") / name for name in sorted(ASKED)), *map(Path, FACTS)), counters())
        left_out, shown = unasked(), files_around(view.hidden)
        seen = (*facts, *around_hidden(shown, left_out), *view.readable)
        real = {place.resolve() for place in shown}
        around = {path.parent for path in left_out if not real.isdisjoint((path, *path.parents))}
        devices = (*(Path("/dev") / name for name in PLAIN_DEVICES), *gpu_devices())
        rules = {
            "read": seen,
            # Python looks for a module in the list of a folder's names, so folders around hidden ones are listed.
            "list": (*sorted(around), "/proc/sys", "/sys/class", "/sys/devices"),
            "write": (view.folder, "/proc/self"),  # CUDA names its threads there, and fails if it may not
            "devices": devices,
        }
        return [*UNDER_RULES, json.dumps(rules, default=str), *command]


# ---- Seatbelt --------------------------------------------------------------------------------------------------------

# The profiles of coding agents deny the GPU, and MLX then crashes during its import. Ours allows exactly the operations
# that others have measured MLX to need (macOS 26, M4). It makes no cache of compiled GPU code writable, because a later
# run would execute that code. Seatbelt does not limit memory, and it cannot be nested. Unverified on a Mac.
SANDBOX_EXEC = "/usr/bin/sandbox-exec"
HOMEBREW = tuple(f"/opt/homebrew/{part}" for part in ("Cellar", "Frameworks", "lib", "opt"))
READABLE = ("/usr/bin", "/usr/lib", "/usr/share", "/bin", "/sbin", "/System/Library", "/Library/Developer", *HOMEBREW)
# Dyld, the frameworks and the time zones are here. All of /System would be too much: it holds /System/Volumes/Data, a
# second path to every user's files.
FRAMEWORKS = (
    *("/usr/lib", "/usr/share", "/System/Library", "/System/Cryptexes", "/System/Volumes/Preboot/Cryptexes"),
    *("/Library/Apple", "/private/var/db/dyld", "/private/var/db/timezone", "/private/etc/localtime"),
)
# Of kern. only names are allowed that are listed: kern.procargs2 would reveal the arguments and the environment of
# other processes.
PROFILE = """(version 1)
(deny default)
; the GPU's driver, and the shared events that order MLX's work
(allow iokit-open (iokit-user-client-class "AGXDeviceUserClient") (iokit-user-client-class "IOSurfaceRootUserClient"))
; the compiler of Metal's kernels
(allow mach-lookup (global-name "com.apple.MTLCompilerService"))
; facts about the machine that libraries read
(allow sysctl-read (sysctl-name-prefix "hw.") (sysctl-name-prefix "machdep.") (sysctl-name-prefix "vm.") \
(sysctl-name-prefix "iogpu.") (sysctl-name-prefix "kern.os") (sysctl-name-prefix "sysctl.proc_"))
; facts about the kernel, none about other processes
(allow sysctl-read (sysctl-name "kern.argmax") (sysctl-name "kern.bootargs") (sysctl-name "kern.boottime") \
(sysctl-name "kern.clockrate") (sysctl-name "kern.hostname") (sysctl-name "kern.iossupportversion") \
(sysctl-name "kern.maxfilesperproc") (sysctl-name "kern.ngroups") (sysctl-name "kern.secure_kernel") \
(sysctl-name "kern.tcsm_available") (sysctl-name "kern.tcsm_enable") (sysctl-name "kern.usrstack64") \
(sysctl-name "kern.version"))
; psutil and threads ask about the process itself
(allow process-info* (target self))
; abort() and Python's own handlers signal the process itself
(allow signal (target self))
; a Python of a virtual environment becomes another Python
(allow process-exec* {readable})
; it starts no other process, which might outlive it
(deny process-fork)
; no network, not even to this machine
(deny network*)
; every folder on the way to a path is asked about
(allow file-read-metadata)
; dyld wants to read the first of these folders
(allow file-read* (literal "/"))
; programs, libraries and data: the system's, and what the run may read
(allow file-read* {system} {readable})
; libraries are mapped as code
(allow file-map-executable {system} {readable})
; devices without data of their own
(allow file-read* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))
; what a program throws away
(allow file-write-data (literal "/dev/null"))
; its own folder, to read
(allow file-read* {folder})
; its own folder, to write
(allow file-write* {folder})
; all users' files under another name, should a path above have opened it
(deny file-read* file-write* (subpath "/System/Volumes/Data"))
"""


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """Run a command in macOS's sandbox."""

    name = "Seatbelt"
    uncovered = ("unverified on a Mac", "memory is watched, not limited by the kernel")

    def wrap(self, command: Sequence[str], view: View) -> list[str]:
        system = around_hidden(map(Path, READABLE), view.hidden)
        rules = profile([*system, *python_around(view.hidden), *view.readable], view.folder)
        return [SANDBOX_EXEC, "-p", rules, *command]


def profile(read: Sequence[Path], folder: Path) -> str:
    """Return Seatbelt's rules for a process that reads the system and these paths, and writes only in its folder."""
    assert read  # a rule without a path would allow every path
    system = " ".join(f'(subpath "{place}")' for place in FRAMEWORKS)
    return PROFILE.format(system=system, readable=" ".join(map(_below, read)), folder=_below(folder))


def _below(path: Path) -> str:
    """Return the filter for a folder with links resolved, as Seatbelt compares: on macOS, /tmp is /private/tmp.

    A quote in the path cannot end the string and add rules.
    """
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'(subpath "{escaped}")'


# Each has a name, as `run` and `doctor` print it. uncovered says in plain words what a script can still do in it, and
# wrap() returns the command that runs another one in it.
Sandbox = Open | Bubblewrap | Landlock | Seatbelt
