"""System calls that a boxed program does without: the filter that stands beside Landlock, which knows files alone.

No socket leads out: none but unix sockets for streams can be made, for pairs of them and for CUDA, which does not start
without one to listen at, and no socket can be connected. So nothing is sent or looked up, not to a service of this
machine either. With EPERM the kernel also refuses what goes around the filter, into other processes or their limits,
and the parts of itself that it guards least. What takes a capability is not listed: the box has none. Whatever a
program starts inherits the filter, and nobody can take it off.
"""

import ctypes
import errno
import os
import sys

PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, REFUSE, UNKNOWN, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's name, and the column below
X32 = 1 << 30  # added to a number, it asks an x86 kernel for the call of another table

REFUSED = {
    "connect": (42, 203),
    "io_uring_setup": (425, 425),  # does what the filter never sees
    "ptrace": (101, 117), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # memory, queues and locks that all processes of the user share
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    # what Landlock leaves open on files: to give them away or mark them, and to watch folders
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
}  # fmt: skip
BY_ARGUMENT = {
    "socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "clone3": (435, 435), "prlimit64": (302, 261),
}  # fmt: skip

NAMESPACES = 0x7E020000  # the CLONE_NEW… flags of clone
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, OF_SOCKETS = 1, 1, 5, 0xF

# ---- the filter: a program of the kernel's small packet machine, over struct seccomp_data ----------------------------

LOAD, RETURN, AND = 0x20, 0x06, 0x54
EQUAL, AT_LEAST, ANY_OF = 0x15, 0x35, 0x45
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # an argument's lower half: its upper one the kernel drops as well

Instruction = tuple[int, int, int, int]  # what to do, steps to skip if it holds, steps to skip if not, with what


def available() -> bool:
    """Whether install() works here. Asks for no filter at all: a kernel that has them finds fault with the address."""
    known = sys.platform == "linux" and sys.maxsize > 1 << 32 and os.uname().machine in ARCHITECTURES
    return known and _set_filter(None) != 0 and ctypes.get_errno() == errno.EFAULT


def install() -> int:
    """Holds this process, which may gain no privileges any more, to the filter; 0 where the kernel agrees."""
    steps = program(os.uname().machine)
    code = (_Step * len(steps))(*(_Step(*step) for step in steps))
    return _set_filter(ctypes.byref(_Program(len(steps), code)))


def program(machine: str) -> list[Instruction]:
    architecture, column = ARCHITECTURES[machine]
    number = {name: row[column] for name, row in (REFUSED | BY_ARGUMENT).items()}
    return [
        _load(ARCHITECTURE), *_unless(EQUAL, architecture, _answer(KILL)),  # 32-bit calls have numbers of their own
        _load(NUMBER), *_when(AT_LEAST, X32, _answer(REFUSE)),
        *(step for name in REFUSED for step in _when(EQUAL, number[name], _answer(REFUSE))),
        *_when(EQUAL, number["clone3"], _answer(UNKNOWN)),  # its flags are out of sight; libraries then take clone
        *_when(EQUAL, number["clone"], _load(FIRST), *_when(ANY_OF, NAMESPACES, _answer(REFUSE)), _answer(ALLOW)),
        *_when(EQUAL, number["prlimit64"], _load(FIRST), *_when(EQUAL, 0, _answer(ALLOW)), _answer(REFUSE)),
        *_when(EQUAL, number["socket"], *_unix_stream()),
        *_when(EQUAL, number["socketpair"], *_unix_stream()),
        _answer(ALLOW),
    ]  # fmt: skip


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
