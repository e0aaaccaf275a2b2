"""Build the filter of system calls for every box; it cannot be removed, and child processes inherit it.

In every box it refuses, with EPERM, calls whose effects namespaces do not separate. One example is the page cache: a
program that can ask which pages are in memory, and evict some, can leave a message for a later run. Keyrings and the
running numbers of sockets would do as well. It also refuses calls that bypass the filter, reach into other processes
or use the least protected parts of the kernel. Calls that need a capability are not listed, as no box has any.

With Landlock, which covers files only, it replaces the rest of bubblewrap's namespaces and mounts. A program can make
unix stream sockets only, for pairs and because CUDA does not start without one to listen on. No socket can be
connected, so no data leaves, not even to a service of this machine. Changes of file times, permissions and other
processes' priorities have no effect but seem to succeed, so that linkers, copies and threads work. For that reason a
program compiled inside cannot be started by its name. Setting the time of a path to now is refused: Path.touch() asks
for it first, and makes a file only where that fails.

A box that shares its machine with others of the same night keeps its cores: a call that would change them, for which
no capability is needed, has no effect but seems to succeed, so that libraries which place their threads work.

    python -I -S seccomp.py [--pinned] BWRAP ARGUMENTS...   becomes bubblewrap, which applies the filter to its command
"""

import ctypes
import errno
import os
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x50000
REFUSE, UNKNOWN, INVALID, UNSUPPORTED, DONE = (
    ERRNO | number for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, 0)
)  # DONE pretends success: the call has no effect
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's number, and the column below
X32 = 1 << 30  # added to a call's number, it selects the x32 table of an x86 kernel

Table = dict[str, tuple[int | None, ...]]


def _table(text: str) -> Table:
    """Read lines of a system call and its numbers on x86_64 and aarch64, with a dash where one does not have it."""
    rows = (line.partition("#")[0].split() for line in text.splitlines())
    return {row[0]: tuple(None if word == "-" else int(word) for word in row[1:3]) for row in rows if row}


REFUSED = _table("""
    io_uring_setup     425  425   # their operations bypass the filter
    io_setup           206    0
    mincore             27  232   # which pages of a file are in memory
    cachestat          451  451
    process_madvise    440  440
    ptrace             101  117
    process_vm_writev  311  271
    unshare            272   97
    setns              308  268
    bpf                321  280
    perf_event_open    298  241
    userfaultfd        323  282
    add_key            248  217
    request_key        249  218
    keyctl             250  219
    inotify_init       253    -   # these tell what the user's other programs do with files that the box shows
    inotify_init1      294   26
    fanotify_init      300  262
""")
PRETENDED = _table("""
    fadvise64          221  223
    readahead          187  213
""")
PRETENDED_IF_PINNED = _table("sched_setaffinity 203 122")
BY_ARGUMENT = _table("""
    clone               56  220
    clone3             435  435
    madvise             28  233
    preadv2            327  286
    getsockopt          55  209
""")

# ---- with Landlock only ----------------------------------------------------------------------------------------------

REFUSED_TOO = _table("""
    connect             42  203
    shmget              29  194   # memory, queues and locks that all processes of the user share
    shmat               30  196
    shmctl              31  195
    msgget              68  186
    msgsnd              69  189
    msgrcv              70  188
    msgctl              71  187
    semget              64  190
    semop               65  193
    semtimedop         220  192
    semctl              66  191
    mq_open            240  180
    mq_unlink          241  181
    chown               92    -   # changes of owner and attributes, which Landlock does not cover
    lchown              94    -
    fchown              93   55
    fchownat           260   54
    file_setattr       469  469
    setxattr           188    5
    lsetxattr          189    6
    fsetxattr          190    7
    setxattrat         463  463
    removexattr        197   14
    lremovexattr       198   15
    fremovexattr       199   16
    removexattrat      466  466
""")
PRETENDED_TOO = _table("""
    chmod               90    -
    fchmod              91   52
    fchmodat           268   53
    fchmodat2          452  452
""")
BY_ARGUMENT_TOO = _table("""
    socket              41  198
    socketpair          53  199
    prlimit64          302  261
    ioctl               16   29
    setpriority        141  140
    ioprio_set         251   30
    sched_setaffinity  203  122
    sched_setscheduler 144  119
    sched_setparam     142  118
    sched_setattr      314  274
    utime              132    -
    utimes             235    -
    futimesat          261    -
    utimensat          280   88
""")

NAMESPACES = 0x7E020000  # the CLONE_NEW… flags of clone
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, OF_SOCKETS = 1, 1, 5, 0xF
RANDOM, WILLNEED, COLD, PAGEOUT = 1, 3, 20, 21  # advice about memory; older kernels do not know the last two
NOWAIT_OR_UNCACHED = 0x8 | 0x80  # flags of preadv2 that read only cached pages, or leave none in the cache
MARKS = (0x40086602, 0x40087602, 0x401C5820)  # FS_IOC_SETFLAGS, …SETVERSION, …FSSETXATTR: need no right to write
SOL_SOCKET, SO_COOKIE, SO_NETNS_COOKIE = 1, 57, 71  # cookies are numbers that the kernel counts up
PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1

# ---- the filter: a program of the kernel's small packet machine, over struct seccomp_data ----------------------------

LOAD, RETURN, AND = 0x20, 0x06, 0x54
EQUAL, AT_LEAST, ANY_OF = 0x15, 0x35, 0x45
NUMBER, ARCHITECTURE = 0, 4
FIRST, SECOND, THIRD, SIXTH = 16, 24, 32, 56  # the lower half of an argument; the kernel ignores the upper half, too
PINNED = "--pinned"
NO_FILTER = 126  # a shell's exit code for a command that it cannot run

INSTRUCTION_BYTES = 8
Instruction = tuple[int, int, int, int]  # operation, steps to skip if true, steps to skip if false, operand


def available() -> bool:
    """Return whether filters work here: a kernel that supports them answers EFAULT to a null filter."""
    has_table = sys.platform == "linux" and sys.maxsize > 1 << 32 and os.uname().machine in ARCHITECTURES
    return has_table and _set_filter(None) != 0 and ctypes.get_errno() == errno.EFAULT


def install(*, pinned: bool = False) -> int:
    """Apply Landlock's filter to this process, which must have no_new_privs set; return 0, or -1 with errno set."""
    code = _code(namespaces=False, pinned=pinned)
    held = ctypes.create_string_buffer(code, len(code))
    return _set_filter(struct.pack("@HP", len(code) // INSTRUCTION_BYTES, ctypes.addressof(held)))  # struct sock_fprog


def main(command: list[str]) -> int:
    """Become bubblewrap with the filter in a pipe, which it reads and closes; return an exit code only on failure."""
    pinned = command[0] == PINNED
    command = command[pinned:]
    there, here = os.pipe()
    os.write(here, _code(namespaces=True, pinned=pinned))  # much less than a pipe holds, so this does not block
    os.set_inheritable(there, True)
    try:
        os.execv(command[0], [command[0], "--seccomp", str(there), *command[1:]])
    except OSError as error:
        print(f"seccomp: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
    return NO_FILTER


def _code(*, namespaces: bool, pinned: bool) -> bytes:
    """Return this machine's filter as the kernel reads it."""
    steps = program(os.uname().machine, namespaces=namespaces, pinned=pinned)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def program(machine: str, *, namespaces: bool, pinned: bool = False) -> list[Instruction]:
    """Return the filter for a machine's architecture, for a box with its own namespaces (bubblewrap) or without.

    pinned: its cores cannot be changed.
    """
    architecture, column = ARCHITECTURES[machine]
    tables = [(REFUSED, REFUSE), (PRETENDED, DONE), (PRETENDED_IF_PINNED if pinned else {}, DONE)]
    tables += [] if namespaces else [(REFUSED_TOO, REFUSE), (PRETENDED_TOO, DONE)]
    by_argument, steps = _by_argument(), BY_ARGUMENT | ({} if namespaces else BY_ARGUMENT_TOO)
    return [
        _load(ARCHITECTURE), *_unless(EQUAL, architecture, _answer(KILL)),  # 32-bit calls have other numbers
        _load(NUMBER), *_when(AT_LEAST, X32, _answer(REFUSE)),
        *(step for table, answer in tables for row in table.values()
          for step in _when(EQUAL, row[column], _answer(answer))),
        *(step for name, row in steps.items() for step in _when(EQUAL, row[column], *by_argument[name])),
        _answer(ALLOW),
    ]  # fmt: skip


def _by_argument() -> dict[str, list[Instruction]]:
    """Return the steps for each call whose answer depends on its arguments."""
    advice = {RANDOM: DONE, WILLNEED: DONE, COLD: INVALID, PAGEOUT: INVALID}
    # a thread's id is not 0 even for the process's own threads, and a library that gets an error here gives up
    scheduling = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    return {
        "clone3": [_answer(UNKNOWN)],  # a filter cannot read its flags; libraries then use clone
        "clone": [_load(FIRST), *_when(ANY_OF, NAMESPACES, _answer(REFUSE)), _answer(ALLOW)],
        "madvise": [_load(THIRD), *_answers(advice), _answer(ALLOW)],
        "getsockopt": [
            _load(SECOND), *_unless(EQUAL, SOL_SOCKET, _answer(ALLOW)),
            _load(THIRD), *_answers({SO_COOKIE: REFUSE, SO_NETNS_COOKIE: REFUSE}), _answer(ALLOW),
        ],
        "preadv2": [_load(SIXTH), *_when(ANY_OF, NOWAIT_OR_UNCACHED, _answer(UNSUPPORTED)), _answer(ALLOW)],
        **dict.fromkeys(("socket", "socketpair"), _unix_stream()),
        "ioctl": [_load(SECOND), *_answers(dict.fromkeys(MARKS, REFUSE)), _answer(ALLOW)],
        "prlimit64": _own(FIRST, REFUSE),
        **dict.fromkeys(scheduling, _own(FIRST, DONE)),
        "setpriority": [_load(FIRST), *_unless(EQUAL, PRIO_PROCESS, _answer(DONE)), *_own(SECOND, DONE)],
        "ioprio_set": [_load(FIRST), *_unless(EQUAL, IOPRIO_WHO_PROCESS, _answer(DONE)), *_own(SECOND, DONE)],
        **dict.fromkeys(("utime", "utimes"), _unless_now(SECOND)),
        # without a path the file is open, so that it exists
        "futimesat": [_load(SECOND), *_when(EQUAL, 0, _answer(DONE)), *_unless_now(THIRD)],
        "utimensat": [_load(SECOND), *_when(EQUAL, 0, _answer(DONE)), *_unless_now(THIRD)],
    }  # fmt: skip


def _own(process: int, otherwise: int) -> list[Instruction]:
    """Allow a call whose argument `process` is 0, the caller itself; else give the other answer."""
    return [_load(process), *_when(EQUAL, 0, _answer(ALLOW)), _answer(otherwise)]


def _unless_now(times: int) -> list[Instruction]:
    """Pretend success if the argument `times` is given; refuse a call without it, which means now."""
    return [_load(times), *_when(EQUAL, 0, _answer(REFUSE)), _answer(DONE)]


def _unix_stream() -> list[Instruction]:
    """Allow unix stream sockets only: datagrams need no connection, so even a pair's socket could send them out."""
    return [
        _load(FIRST), *_unless(EQUAL, AF_UNIX, _answer(REFUSE)),
        _load(SECOND), (AND, 0, 0, OF_SOCKETS),
        *_answers({SOCK_STREAM: ALLOW, SOCK_SEQPACKET: ALLOW}), _answer(REFUSE),
    ]  # fmt: skip


def _load(offset: int) -> Instruction:
    return LOAD, 0, 0, offset


def _answer(value: int) -> Instruction:
    return RETURN, 0, 0, value


def _answers(answers: dict[int, int]) -> list[Instruction]:
    """Give each of these values its own answer."""
    return [step for value, answer in answers.items() for step in _when(EQUAL, value, _answer(answer))]


def _when(test: int, value: int | None, *steps: Instruction) -> list[Instruction]:
    """Return steps that run if the test is true; [] if the value is None, a call that this machine lacks."""
    return [] if value is None else [(test, 0, len(steps), value), *steps]


def _unless(test: int, value: int, *steps: Instruction) -> list[Instruction]:
    return [(test, len(steps), 0, value), *steps]


def _set_filter(filter_: bytes | None) -> int:
    answer: int = LIBC.prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), filter_)
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
