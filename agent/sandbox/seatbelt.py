"""Run a command in Seatbelt, the sandbox of macOS, under our own profile. Unverified on a Mac.

The profiles of coding agents deny the GPU, and MLX then crashes during its import. Ours allows exactly the operations
that others have measured MLX to need (macOS 26, M4). It makes no cache of compiled GPU code writable, because a later
run would execute that code. Seatbelt does not limit memory, and it cannot be nested.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.places import View, around_hidden, python_around

PROGRAM = "/usr/bin/sandbox-exec"
PROBE_S = 10
HOMEBREW = tuple(f"/opt/homebrew/{part}" for part in ("Cellar", "Frameworks", "lib", "opt"))
READABLE = ("/usr/bin", "/usr/lib", "/usr/share", "/bin", "/sbin", "/System/Library", "/Library/Developer", *HOMEBREW)
# Where dyld, the frameworks and the time zones are. Not all of /System: it holds /System/Volumes/Data, a second path to
# every user's files.
SYSTEM = (
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
        return [PROGRAM, "-p", rules, *command]


def profile(read: Sequence[Path], folder: Path) -> str:
    """Return Seatbelt's rules for a process that reads the system and these paths, and writes only in its folder."""
    assert read  # a rule without a path would allow every path
    system = " ".join(f'(subpath "{place}")' for place in SYSTEM)
    return PROFILE.format(system=system, readable=" ".join(map(_below, read)), folder=_below(folder))


def unusable(program: str = PROGRAM) -> str | None:
    """Return None if Seatbelt works here, else one sentence that says why not."""
    try:
        probe = [program, "-p", "(version 1)(allow default)", "/usr/bin/true"]
        done = subprocess.run(probe, capture_output=True, text=True, errors="replace", timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be started ({error})"
    if done.returncode == 0:
        return None
    words = done.stderr.strip() or f"exit code {done.returncode}"
    return f"Seatbelt starts no sandbox here ({words}), as inside another one: run nightshift from a plain terminal"


def _below(path: Path) -> str:
    """Return the filter for a folder with links resolved, as Seatbelt compares: on macOS, /tmp is /private/tmp.

    A quote in the path cannot end the string and add rules.
    """
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'(subpath "{escaped}")'
