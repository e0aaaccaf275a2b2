"""Run one command under the kernel's Landlock: the sandbox of machines where bubblewrap does not work.

    main({"read": ["/usr"], "write": ["/work"], "devices": ["/dev/null"]}, COMMAND)

The command may read, list and execute files below the paths to read; list the folders below the paths to list; do
everything except making devices below the paths to write; and read, write and control the devices. Paths that do not
exist are ignored. All other files and the network are closed to it and to every process that it starts. It has no
capabilities, even if root starts it. uncovered() lists the gaps that bubblewrap would close. Where the kernel refuses
the rules, nothing is started.

Honest scripts lose sockets and shared memory, and so multiprocessing's locks, queues, pools, managers and fork server.
Its processes and pipes work, and so do threads and programs that a script starts; these do not see their own folders in
/proc, so CUDA works in the script's own process only. A script can load a library that it compiled, but cannot start a
program that it compiled, because chmod has no effect.
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable, Mapping

from agent.sandbox import seccomp

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, with the same numbers on every architecture
ASK_FOR_VERSION, PATH_BENEATH = 1, 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64

# ---- rights: bits of the kernel's interface --------------------------------------------------------------------------

KNOWN = {1: 13, 2: 14, 3: 15, 5: 16}  # version → how many rights to files it knows, counted from the lowest
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, MAKE_CHAR, MAKE_BLOCK, TRUNCATE, IOCTL_DEV = (
    1 << bit for bit in (0, 1, 2, 3, 6, 11, 14, 15)
)
BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)  # making devices is left out: root could make one for the whole disk
DEVICES = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the only rights that a plain file can have
RIGHTS = {"read": READ, "list": READ_DIR, "write": WRITE, "devices": DEVICES}

# ---- gaps ------------------------------------------------------------------------------------------------------------

ALWAYS_OPEN = (
    "whether a file exists, its size and its times",
    "notes to a later run in when a file was last read, and in how fast its name is found again",
    "whether a process with a given number runs, its group, cores, priority and processor time, and how many threads "
    "and open files it has",
    "notes to a later run in how many processes the machine has started; what its network does (/proc/self/net)",
)
OPEN_BELOW = (
    (1, "every file of the user"),
    (3, "cutting short the user's own files"),
    (5, "commands to devices that are open to the user"),
    (6, "signals to the user's other processes"),
)


def abi() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none, or no filter of system calls beside it."""
    if not seccomp.available():
        return 0
    return max(0, _call(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_FOR_VERSION))


def uncovered(abi: int) -> tuple[str, ...]:
    """Return the gaps of this version of Landlock that bubblewrap would close, in plain words."""
    return tuple(words for version, words in OPEN_BELOW if abi < version) + ALWAYS_OPEN


def main(rules: Mapping[str, Iterable[str]], command: list[str]) -> None:
    """Become the command under these rules; exit with a sentence where that is impossible."""
    os.get_exec_path()  # imports modules that execvp needs, while they can still be read
    restrict(rules)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"landlock: {command[0]} cannot be started in its sandbox: {error.strerror}")


def restrict(rules: Mapping[str, Iterable[str]]) -> None:
    """Deny this process and its children everything that the rules do not allow, or exit."""
    version = abi()
    if version == 0:
        sys.exit("landlock: this kernel has no Landlock or no filters, or they are switched off")
    seccomp.log_in()
    seccomp.blur()
    # older kernels accept the longest struct landlock_ruleset_attr, as the fields that they do not know are zero
    attributes = struct.pack("=QQQ", *handled(version))
    ruleset = _checked("make a sandbox", _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for kind, paths in rules.items():
        for path in paths:
            _allow(ruleset, path, RIGHTS[kind] & handled(version)[0])
    _give_up_capabilities()
    _checked("forbid new privileges", seccomp.LIBC.prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    _checked("close the sandbox", _call(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    _checked("filter system calls", seccomp.install())


def handled(version: int) -> tuple[int, int, int]:
    """Return the rights to files, networks and scopes that this version of Landlock can deny, as bits."""
    files = (1 << max(bits for since, bits in KNOWN.items() if since <= version)) - 1
    return files, (BIND_TCP | CONNECT_TCP) * (version >= 4), (ABSTRACT_SOCKETS | SIGNALS) * (version >= 6)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that does not exist, or cannot be reached, needs no rule
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= OF_FILES
    rule = struct.pack("=Qi", rights, place)  # struct landlock_path_beneath_attr
    _checked(f"open {path}", _call(ADD_RULE, ruleset, PATH_BENEATH, rule, 0))
    if path.startswith("/proc/"):  # unless it is held open, the kernel may drop the entry, and our rule with it
        os.set_inheritable(place, True)
    else:
        os.close(place)


def _give_up_capabilities() -> None:
    """Drop all capabilities: Landlock restricts root's files, but not loading modules or rebooting."""
    for capability in range(CAPABILITIES):  # this fails for users other than root, who have none to drop
        seccomp.LIBC.prctl(PR_CAPBSET_DROP, *map(ctypes.c_ulong, (capability, 0, 0, 0)))
    of_this_process = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _checked("give up capabilities", seccomp.LIBC.capset(of_this_process, bytes(24)))


def _call(number: int, *arguments: object) -> int:
    answer: int = seccomp.LIBC.syscall(ctypes.c_long(number), *arguments)
    return answer


def _checked(deed: str, answer: int) -> int:
    if answer < 0:
        sys.exit(f"landlock: the kernel would not {deed}: {os.strerror(ctypes.get_errno())}")
    return answer
