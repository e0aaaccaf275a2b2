"""Write our profile for Seatbelt, the sandbox of macOS. Unverified on a Mac.

The profiles of coding agents deny the GPU, and MLX then crashes during its import. Ours allows exactly the operations
that others have measured MLX to need (macOS 26, M4). It makes no cache of compiled GPU code writable, because a later
run would execute that code. Seatbelt does not limit memory, and it cannot be nested.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

PROGRAM = "/usr/bin/sandbox-exec"
ALLOW_ALL = "(version 1)(allow default)"
PROBE_S = 10

# Where dyld, the frameworks and the time zones are. Not all of /System: it holds /System/Volumes/Data, a second path to
# every user's files.
SYSTEM = (
    *("/usr/lib", "/usr/share", "/System/Library", "/System/Cryptexes", "/System/Volumes/Preboot/Cryptexes"),
    *("/Library/Apple", "/private/var/db/dyld", "/private/var/db/timezone", "/private/etc/localtime"),
)
# kern. is allowed name by name: kern.procargs2 would reveal the arguments and the environment of other processes.
FACTS = ("hw.", "machdep.", "vm.", "iogpu.", "kern.os", "sysctl.proc_")
KERNEL_FACTS = (
    *("argmax", "bootargs", "boottime", "clockrate", "hostname", "iossupportversion", "maxfilesperproc", "ngroups"),
    *("secure_kernel", "tcsm_available", "tcsm_enable", "usrstack64", "version"),
)


def profile(read: Sequence[Path], write: Sequence[Path]) -> str:
    """Return Seatbelt's rules for a process that reads the system and these paths, and writes only below `write`."""
    readable, writable = [_below(path) for path in read], [_below(path) for path in write]
    programs = [*(f"(subpath {_quoted(place)})" for place in SYSTEM), *readable]
    compiler = _named("global-name", "com.apple.MTLCompilerService")
    gpu = _named("iokit-user-client-class", "AGXDeviceUserClient", "IOSurfaceRootUserClient")
    rules = (
        ("the GPU's driver, and the shared events that order MLX's work", _allow("iokit-open", gpu)),
        (
            "the compiler of Metal's kernels",
            _allow("mach-lookup", compiler),
        ),
        ("facts about the machine that libraries read", _allow("sysctl-read", _named("sysctl-name-prefix", *FACTS))),
        (
            "facts about the kernel, none about other processes",
            _allow("sysctl-read", _named("sysctl-name", *(f"kern.{name}" for name in KERNEL_FACTS))),
        ),
        ("psutil and threads ask about the process itself", "(allow process-info* (target self))"),
        ("abort() and Python's own handlers signal the process itself", "(allow signal (target self))"),
        ("a Python of a virtual environment becomes another Python", _allow("process-exec*", readable)),
        ("it starts no other process, which might outlive it", "(deny process-fork)"),
        ("no network, not even to this machine", "(deny network*)"),
        ("every folder on the way to a path is asked about", "(allow file-read-metadata)"),
        ("dyld wants to read the first of these folders", '(allow file-read* (literal "/"))'),
        ("programs, libraries and data: the system's, and what the run may read", _allow("file-read*", programs)),
        ("libraries are mapped as code", _allow("file-map-executable", programs)),
        (
            "devices without data of their own",
            _allow("file-read*", _named("literal", "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")),
        ),
        ("what a program throws away", _allow("file-write-data", _named("literal", "/dev/null"))),
        ("its own folder, to read", _allow("file-read*", writable)),
        ("its own folder, to write", _allow("file-write*", writable)),
        (
            "all users' files under another name, should a path above have opened it",
            '(deny file-read* file-write* (subpath "/System/Volumes/Data"))',
        ),
    )
    return "\n".join(["(version 1)", "(deny default)", *(f"; {reason}\n{rule}" for reason, rule in rules), ""])


def wrap(text: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs this command under a profile."""
    return [PROGRAM, "-p", text, *command]


def unusable(platform: str = sys.platform, program: str = PROGRAM) -> str | None:
    """Return None if Seatbelt works here, else one sentence that says why not."""
    if platform != "darwin":
        return f"Seatbelt is part of macOS, and this is {platform}"
    try:
        probe = [program, "-p", ALLOW_ALL, "/usr/bin/true"]
        done = subprocess.run(probe, capture_output=True, text=True, errors="replace", timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be started ({error})"
    if done.returncode == 0:
        return None
    said = done.stderr.strip() or f"exit code {done.returncode}"
    return f"Seatbelt starts no sandbox here ({said}), as inside another one: run nightshift from a plain terminal"


def _allow(operation: str, filters: Iterable[str]) -> str:
    """Return a rule for these filters; without filters a comment, since such a rule would allow everything."""
    told = " ".join(filters)
    return f"(allow {operation} {told})" if told else f"; no {operation}"


def _named(kind: str, *values: str) -> list[str]:
    return [f"({kind} {_quoted(value)})" for value in values]


def _below(path: Path) -> str:
    """Return the filter for a folder with links resolved, as Seatbelt compares: on macOS, /tmp is /private/tmp."""
    return f"(subpath {_quoted(str(path.resolve()))})"


def _quoted(text: str) -> str:
    """Quote a path, so that a quote in it cannot end the string and add rules."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
