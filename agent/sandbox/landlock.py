"""The box for where bubblewrap cannot be used: one program, held by the kernel's Landlock.

    python -I -S landlock.py '{"read": ["/usr"], "write": ["/work"], "devices": ["/dev/null"]}' COMMAND...

The command may read, list and execute what lies below the paths to read; do as it likes below those to write, but for
making devices; and read, write and control the devices. Paths that do not exist are left out. All other files are
closed to it, the network as well, and whatever it starts inherits that. It has no capabilities, even where root starts
it. What this box leaves open that bubblewrap closes, uncovered() says. Exit code 126: the kernel refused the box.

What honest scripts miss: sockets and shared memory, and so multiprocessing's locks, queues, pools, managers and fork
server. Its processes and pipes work, as do threads and programs that a script starts, but CUDA in the script alone.
Libraries that a script compiles can be loaded, but programs not be started: their permissions stay what they were.
"""

import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

if __name__ == "__main__":  # -I leaves out the folder of a program; last, so that it hides nothing of Python's own
    sys.path.append(str(Path(__file__).parents[2]))
from agent.sandbox import seccomp

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, of the same number on every architecture
ASK_FOR_VERSION, PATH_BENEATH = 1, 1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
CANNOT_BOX, NOT_EXECUTABLE = 126, 127  # what a shell answers for a command that it cannot run, or cannot find

# ---- rights: bits of the kernel's interface --------------------------------------------------------------------------

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR = (1 << bit for bit in range(7))
MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (
    1 << bit for bit in range(7, 16)
)
BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

READ = EXECUTE | READ_FILE | READ_DIR
CHANGE = REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER
WRITE = READ | WRITE_FILE | TRUNCATE | CHANGE  # no devices: root could make one that is the whole disk
DEVICES = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the kernel refuses any other for a plain file
RIGHTS = {"read": READ, "write": WRITE, "devices": DEVICES}

SINCE_1 = READ | WRITE_FILE | MAKE_CHAR | MAKE_BLOCK | CHANGE & ~REFER

# ---- what is not covered ---------------------------------------------------------------------------------------------

ALWAYS_OPEN = (
    "whether a file exists, its size and its times",
    "notes to a later run in when a file was last read, and in how fast it can be read again",
    "which other processes run, and with what arguments",
    "notes to a later run in counters of the kernel (/proc/vmstat, /proc/stat, /sys/class/block/*/stat and the like)",
)
OPEN_BELOW = (
    (1, "every file of the user"),
    (3, "cutting short the user's own files"),
    (5, "commands to devices that are open to the user"),
    (6, "signals to the user's other processes"),
)
ALWAYS = sys.maxsize
UNFILTERED_BELOW = (
    (4, "TCP"),
    (6, "unix sockets with an abstract name"),
    (ALWAYS, "UDP, and DNS with it"),
    (ALWAYS, "unix sockets that have a path"),
    (ALWAYS, "shared memory, and message queues"),
    (ALWAYS, "keyrings of the kernel, and which pages of files are in its memory"),
    (ALWAYS, "the owner, permissions, times and attributes of the user's own files, which can be changed"),
    (ALWAYS, "the names of files that appear in the user's folders"),
    (ALWAYS, "the limits, the priority and the cores of the user's other processes, which can be changed"),
)


class Refused(Exception):
    """The kernel does not make this box."""


def abi() -> int:
    """The version of the kernel's Landlock; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_FOR_VERSION))


def uncovered(abi: int) -> tuple[str, ...]:
    """What stays open inside, where the kernel's Landlock is of this version, that bubblewrap would close."""
    gaps = OPEN_BELOW if seccomp.available() else OPEN_BELOW + UNFILTERED_BELOW
    return tuple(words for version, words in gaps if abi < version) + ALWAYS_OPEN


def main(rules: Mapping[str, Iterable[str]], command: list[str]) -> int:
    """Does not return where all goes well: this process becomes the command."""
    os.get_exec_path()  # imports what execvp will need, while the library can still be read
    try:
        restrict(rules)
    except Refused as refusal:
        print(f"landlock: {refusal}; the command was not started", file=sys.stderr)
        return CANNOT_BOX
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"landlock: {command[0]} cannot be started in its box: {error.strerror}", file=sys.stderr)
    return NOT_EXECUTABLE


def restrict(rules: Mapping[str, Iterable[str]]) -> None:
    """Closes to this process, and to whatever it starts, all that the rules do not open; raises Refused."""
    version = abi()
    if version == 0:
        raise Refused("this kernel has no Landlock, or it is switched off")
    ruleset = _checked("make a box", _call(CREATE_RULESET, *handled(version), 0))
    for kind, paths in rules.items():
        for path in paths:
            _allow(ruleset, path, RIGHTS[kind] & handled_files(version))
    _give_up_capabilities()
    _checked("forbid new privileges", _libc().prctl(PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    _checked("close the box", _call(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    if seccomp.available():
        _checked("filter system calls", seccomp.install())


def handled_files(version: int) -> int:
    """The rights to files that a kernel of this version can deny."""
    return SINCE_1 | REFER * (version >= 2) | TRUNCATE * (version >= 3) | IOCTL_DEV * (version >= 5)


def handled(version: int) -> tuple[ctypes.Array[ctypes.c_uint64], ctypes.c_size_t]:
    """All that is denied unless a rule allows it: struct landlock_ruleset_attr of the newest kernel, and its size.

    Older kernels accept it, since what they do not know is zero.
    """
    network, scope = (BIND_TCP | CONNECT_TCP) * (version >= 4), (ABSTRACT_SOCKETS | SIGNALS) * (version >= 6)
    attributes = (ctypes.c_uint64 * 3)(handled_files(version), network, scope)
    return attributes, ctypes.c_size_t(ctypes.sizeof(attributes))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there, or out of reach, needs no rule
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= OF_FILES
    rule = _PathBeneath(rights, place)
    _checked(f"open {path}", _call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0))
    if path.startswith("/proc/"):  # what nobody holds, the kernel forgets when short of memory, and the rule with it
        os.set_inheritable(place, True)
    else:
        os.close(place)


def _give_up_capabilities() -> None:
    """Landlock stops root at files, but not at what else root may do to the machine: load modules, say, or reboot."""
    for capability in range(CAPABILITIES):  # the kernel refuses that to others than root, who have none to give up
        _libc().prctl(PR_CAPBSET_DROP, *map(ctypes.c_ulong, (capability, 0, 0, 0)))
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _checked("give up capabilities", _libc().capset(header, nothing))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    answer: int = _libc().syscall(ctypes.c_long(number), *arguments)
    return answer


def _checked(deed: str, answer: int) -> int:
    if answer < 0:
        raise Refused(f"the kernel would not {deed}: {os.strerror(ctypes.get_errno())}")
    return answer


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
