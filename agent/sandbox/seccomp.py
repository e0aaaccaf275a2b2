"""System calls that a boxed program does without: a filter that nobody can take off, and that all it starts inherits.

In every box it closes what knows no namespaces. The kernel's memory of files is shared by all: a program that is told
which pages are in it, and puts out those that it likes, leaves notes there for whoever comes later, and so it does in
keyrings and with the numbers of sockets, which count up. With EPERM the kernel also refuses what goes around the
filter, into other processes, and the parts of itself that it guards least. What takes a capability is not listed: no
box has one.

Beside Landlock, which knows files alone, it closes the rest of what bubblewrap has namespaces and mounts for. No socket
leads out: none but unix sockets for streams can be made, for pairs of them and for CUDA, which does not start without
one to listen at, and no socket can be connected. So nothing is sent or looked up, not to a service of this machine
either. Times, permissions and other processes' priorities stay as they are, though the kernel answers as if they had
changed: linkers, copies and threads go on, but no program that is made in there can be started by its name.

    python -I -S seccomp.py BWRAP ARGUMENTS...        becomes bubblewrap, which holds its command to the filter
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x50000
REFUSE, UNKNOWN, INVALID, UNSUPPORTED, DONE = (
    ERRNO | number for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, 0)
)  # the last is a lie: the call has no effect
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's name, and the column below
X32 = 1 << 30  # added to a number, it asks an x86 kernel for the call of another table

Table = dict[str, tuple[int | None, int | None]]

REFUSED: Table = {
    "io_uring_setup": (425, 425), "io_setup": (206, 0),  # they do what the filter never sees
    "mincore": (27, 232), "cachestat": (451, 451),  # which pages of a file are in memory
    "process_madvise": (440, 440),
    "ptrace": (101, 117), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # what the user's other programs do with files that are in the box, too
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
}  # fmt: skip
PRETENDED: Table = {"fadvise64": (221, 223), "readahead": (187, 213)}
BY_ARGUMENT: Table = {
    "clone": (56, 220), "clone3": (435, 435), "madvise": (28, 233), "preadv2": (327, 286),
    "getsockopt": (55, 209),
}  # fmt: skip

# ---- and beside Landlock ---------------------------------------------------------------------------------------------

REFUSED_TOO: Table = {
    "connect": (42, 203),
    # memory, queues and locks that all processes of the user share
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    # what Landlock leaves open on files: to give them away or mark them
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54), "file_setattr": (469, 469),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
}  # fmt: skip
PRETENDED_TOO: Table = {
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
}  # fmt: skip
BY_ARGUMENT_TOO: Table = {
    "socket": (41, 198), "socketpair": (53, 199), "prlimit64": (302, 261), "ioctl": (16, 29),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip

NAMESPACES = 0x7E020000  # the CLONE_NEW… flags of clone
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, OF_SOCKETS = 1, 1, 5, 0xF
RANDOM, WILLNEED, COLD, PAGEOUT = 1, 3, 20, 21  # advice about memory; the last two are young, and may be unknown
NOWAIT_OR_UNCACHED = 0x8 | 0x80  # to read no more than is in memory, or to leave nothing there
MARKS = (0x40086602, 0x40087602, 0x401C5820)  # FS_IOC_SETFLAGS, …SETVERSION, …FSSETXATTR: their owner needs no writing
SOL_SOCKET, SO_COOKIE, SO_NETNS_COOKIE = 1, 57, 71  # numbers that the kernel counts up and never gives twice
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1

# ---- the filter: a program of the kernel's small packet machine, over struct seccomp_data ----------------------------

LOAD, RETURN, AND = 0x20, 0x06, 0x54
EQUAL, AT_LEAST, ANY_OF = 0x15, 0x35, 0x45
NUMBER, ARCHITECTURE = 0, 4
FIRST, SECOND, THIRD, SIXTH = 16, 24, 32, 56  # an argument's lower half: its upper one the kernel drops as well
NO_FILTER = 126  # what a shell answers for a command that it cannot run

Instruction = tuple[int, int, int, int]  # what to do, steps to skip if it holds, steps to skip if not, with what


def available() -> bool:
    """Whether filters work here. Asks for no filter at all: a kernel that has them finds fault with the address."""
    known = sys.platform == "linux" and sys.maxsize > 1 << 32 and os.uname().machine in ARCHITECTURES
    return known and _set_filter(None) != 0 and ctypes.get_errno() == errno.EFAULT


def install() -> int:
    """Holds this process, which may gain no privileges any more, to Landlock's filter; 0 where the kernel agrees."""
    steps = program(os.uname().machine, namespaces=False)
    code = (_Step * len(steps))(*(_Step(*step) for step in steps))
    return _set_filter(ctypes.byref(_Program(len(steps), code)))


def main(command: list[str]) -> int:
    """Does not return where all goes well: this process becomes bubblewrap, which reads the filter and closes it."""
    filter_ = b"".join(struct.pack("=HBBI", *step) for step in program(os.uname().machine, namespaces=True))
    there, here = os.pipe()
    os.write(here, filter_)  # far less than a pipe holds
    os.set_inheritable(there, True)
    try:
        os.execv(command[0], [command[0], "--seccomp", str(there), *command[1:]])
    except OSError as error:
        print(f"seccomp: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
    return NO_FILTER


def program(machine: str, *, namespaces: bool) -> list[Instruction]:
    """For a box that has namespaces and mounts of its own, or for one that has none."""
    architecture, column = ARCHITECTURES[machine]
    tables = [(REFUSED, _answer(REFUSE)), (PRETENDED, _answer(DONE))]
    tables += [] if namespaces else [(REFUSED_TOO, _answer(REFUSE)), (PRETENDED_TOO, _answer(DONE))]
    by_argument = _by_argument() | ({} if namespaces else _by_argument_too())
    numbers = BY_ARGUMENT | BY_ARGUMENT_TOO
    return [
        _load(ARCHITECTURE), *_unless(EQUAL, architecture, _answer(KILL)),  # 32-bit calls have numbers of their own
        _load(NUMBER), *_when(AT_LEAST, X32, _answer(REFUSE)),
        *(step for table, said in tables for row in table.values() for step in _when(EQUAL, row[column], said)),
        *(step for name, steps in by_argument.items() for step in _when(EQUAL, numbers[name][column], *steps)),
        _answer(ALLOW),
    ]  # fmt: skip


def _by_argument() -> dict[str, list[Instruction]]:
    advice = {RANDOM: DONE, WILLNEED: DONE, COLD: INVALID, PAGEOUT: INVALID}
    answers = [step for value, said in advice.items() for step in _when(EQUAL, value, _answer(said))]
    return {
        "clone3": [_answer(UNKNOWN)],  # its flags are out of sight; libraries then take clone
        "clone": [_load(FIRST), *_when(ANY_OF, NAMESPACES, _answer(REFUSE)), _answer(ALLOW)],
        "madvise": [_load(THIRD), *answers, _answer(ALLOW)],
        "getsockopt": [
            _load(SECOND), *_unless(EQUAL, SOL_SOCKET, _answer(ALLOW)), _load(THIRD),
            *(step for value in (SO_COOKIE, SO_NETNS_COOKIE) for step in _when(EQUAL, value, _answer(REFUSE))),
            _answer(ALLOW),
        ],
        "preadv2": [_load(SIXTH), *_when(ANY_OF, NOWAIT_OR_UNCACHED, _answer(UNSUPPORTED)), _answer(ALLOW)],
    }  # fmt: skip


def _by_argument_too() -> dict[str, list[Instruction]]:
    marks = [step for value in MARKS for step in _when(EQUAL, value, _answer(REFUSE))]
    # numbers of its own threads are other numbers, too, and a library that may not place them gives up
    scheduling = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    return {
        "socket": _unix_stream(),
        "socketpair": _unix_stream(),
        "ioctl": [_load(SECOND), *marks, _answer(ALLOW)],
        "prlimit64": _own(FIRST, REFUSE),
        **{name: _own(FIRST, DONE) for name in scheduling},
        "setpriority": [_load(FIRST), *_unless(EQUAL, PRIO_PROCESS, _answer(DONE)), *_own(SECOND, DONE)],
        "ioprio_set": [_load(FIRST), *_unless(EQUAL, IOPRIO_WHO_PROCESS, _answer(DONE)), *_own(SECOND, DONE)],
    }


def _own(process: int, otherwise: int) -> list[Instruction]:
    """0 is the one that asks."""
    return [_load(process), *_when(EQUAL, 0, _answer(ALLOW)), _answer(otherwise)]


def _unix_stream() -> list[Instruction]:
    """Datagrams need no connection: even a socket of a pair could send them to any other."""
    return [
        _load(FIRST), *_unless(EQUAL, AF_UNIX, _answer(REFUSE)),
        _load(SECOND), (AND, 0, 0, OF_SOCKETS),
        *_when(EQUAL, SOCK_STREAM, _answer(ALLOW)), *_when(EQUAL, SOCK_SEQPACKET, _answer(ALLOW)), _answer(REFUSE),
    ]  # fmt: skip


def _load(offset: int) -> Instruction:
    return LOAD, 0, 0, offset


def _answer(value: int) -> Instruction:
    return RETURN, 0, 0, value


def _when(test: int, value: int | None, *steps: Instruction) -> list[Instruction]:
    """Nothing where this machine lacks the call, whose number then is None."""
    return [] if value is None else [(test, 0, len(steps), value), *steps]


def _unless(test: int, value: int, *steps: Instruction) -> list[Instruction]:
    return [(test, len(steps), 0, value), *steps]


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


def _set_filter(filter_: object) -> int:
    answer: int = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), filter_)
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
