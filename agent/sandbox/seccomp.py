"""Build the filter of system calls for every sandbox; it cannot be removed, and child processes inherit it.

In every sandbox it refuses, with EPERM, calls whose effects namespaces do not separate. One example is the page cache:
a program that can ask which pages are in memory, and evict some, can leave a message for a later run. Keyrings and the
numbers that the kernel gives to sockets, processes, sessions and logins would do as well. It also refuses calls that
bypass the filter, reach into other processes or use the least protected parts of the kernel. Calls that need a
capability are not listed, as no sandbox has any. A program can make unix stream sockets only, for pairs and because
CUDA does not start without one to listen on; for other families the answer is that of a kernel without them.

With Landlock, which covers files only, it replaces the rest of bubblewrap's namespaces and mounts. No socket can be
connected, so no data leaves, not even to a service of this machine. Changes of file times and permissions have no
effect but seem to succeed, so that linkers and copies work. For that reason a program compiled inside cannot be started
by its name. Setting the time of a path to now is refused: Path.touch() asks for it first, and makes a file only where
that fails.

A sandbox keeps its cores, since others of the same night may have the rest, and the priority of its threads, since a
budget's clock counts how long they stand in queues. A call that would change them, for which no capability is needed,
has no effect but seems to succeed, so that libraries which place their threads work.

    main([BWRAP, *ARGUMENTS])       becomes bubblewrap, which applies the filter to its command
"""

import ctypes
import errno
import os
import re
import socket
import struct
import sys
from contextlib import suppress

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x50000
REFUSE, PRETEND = ERRNO | errno.EPERM, ERRNO  # pretended: the call has no effect and seems to succeed
ANSWERS = {
    "allow": ALLOW,
    "refuse": REFUSE,
    "pretend": PRETEND,
    "unknown": ERRNO | errno.ENOSYS,
    "invalid": ERRNO | errno.EINVAL,
    "unsupported": ERRNO | errno.EOPNOTSUPP,
    "foreign": ERRNO | errno.EAFNOSUPPORT,
}
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's number, and the column below
NOBODY = b"4294967295"  # /proc/self/loginuid says this where nobody has logged in
MIXED_PAIRS = 400  # of sockets; a process has 1,024 open files
INODES = 1024  # a core gets as many at a time: the kernel's LAST_INO_BATCH and SHMEM_INO_BATCH
X32 = 1 << 30  # added to a call's number, it selects the x32 table of an x86 kernel

# ---- the filter: a program of the kernel's small packet machine, over struct seccomp_data ----------------------------

LOAD, RETURN, AND = 0x20, 0x06, 0x54
EQUAL, AT_LEAST = 0x15, 0x35
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets; of an argument the kernel reads the lower half alone
INSTRUCTION_BYTES = ARGUMENT_BYTES = 8
Instruction = tuple[int, int, int, int]  # operation, steps to skip if true, steps to skip if false, operand
Table = dict[str, tuple[tuple[int | None, ...], list[Instruction]]]


def _table(text: str) -> Table:
    """Read lines of a system call, its numbers on x86_64 and aarch64, and its answers, the first that holds.

    A dash in place of a number: this machine does not have the call.
    """
    table: Table = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        name, *numbers, answers = line.split(maxsplit=3)
        steps = [step for answer in answers.split(",") for step in _steps(answer.strip())]
        table[name] = tuple(None if number == "-" else int(number) for number in numbers), steps
    return table


def _steps(answer: str) -> list[Instruction]:
    """Return the steps for an answer, such as `allow`, or one with a condition, such as `arg1 & 0xF == 5: allow`."""
    condition, _, word = answer.rpartition(": ")
    steps = [(RETURN, 0, 0, ANSWERS[word])]
    if not condition:
        return steps
    parsed = re.fullmatch(r"arg(\d)(?: & (\w+))? (==|!=) (\w+)", condition)
    assert parsed, condition
    argument, bits, test, value = parsed.groups()
    load = (LOAD, 0, 0, ARGUMENTS + ARGUMENT_BYTES * int(argument))
    skips = (0, len(steps)) if test == "==" else (len(steps), 0)
    return [load, (AND, 0, 0, int(bits or "0xFFFFFFFF", 0)), (EQUAL, *skips, int(value, 0)), *steps]


EVERYWHERE = _table("""
    io_uring_setup     425  425  refuse   # their operations bypass the filter
    io_setup           206    0  refuse
    mincore             27  232  refuse   # which pages of a file are in memory
    cachestat          451  451  refuse
    process_madvise    440  440  refuse
    ptrace             101  117  refuse
    process_vm_writev  311  271  refuse
    unshare            272   97  refuse
    setns              308  268  refuse
    bpf                321  280  refuse
    perf_event_open    298  241  refuse
    userfaultfd        323  282  refuse
    add_key            248  217  refuse
    request_key        249  218  refuse
    keyctl             250  219  refuse
    shmget              29  194  refuse   # memory that the watch cannot see: of no process, or around a page
    msgget              68  186  refuse
    semget              64  190  refuse
    memfd_secret       447  447  unknown
    vmsplice           278   75  refuse
    close_range        436  436  arg2 & 2 != 0: refuse, allow    # so is a thread's own table of descriptors
    prctl              157  167  arg0 == 4: pretend, arg0 == 1: pretend, allow    # PR_SET_DUMPABLE, PR_SET_PDEATHSIG
    inotify_init       253    -  refuse   # these tell what other programs of the user do with files in the sandbox
    inotify_init1      294   26  refuse
    fanotify_init      300  262  refuse
    # so do F_SETLEASE and F_NOTIFY; F_SET_RW_HINT leaves a number in the inode, which any later process can read
    fcntl   72  25  arg1 == 1024: refuse, arg1 == 1026: refuse, arg1 == 1036: refuse, allow
    fallocate          285   47  arg1 == 0: allow, unsupported    # room beyond a file's end, which its size leaves out
    fadvise64          221  223  pretend
    readahead          187  213  pretend
    sched_setaffinity  203  122  pretend  # a run keeps to the cores of its worker; libraries place their threads
    sched_setscheduler 144  119  pretend  # a thread of low priority would stand in queues for the others' sake
    sched_setparam     142  118  pretend
    sched_setattr      314  274  pretend
    setpriority        141  140  pretend
    clone3             435  435  unknown  # a filter cannot read its flags; libraries then use clone
    # the flags CLONE_NEW… and CLONE_PIDFD; CLONE_THREAD without CLONE_FILES
    clone               56  220  arg0 & 0x7E021000 != 0: refuse, arg0 & 0x10400 == 0x10000: refuse, allow
    kcmp               312  272  unknown  # the order of two objects in the kernel's memory
    pidfd_open         434  434  unknown  # its inode numbers count the machine's processes
    setsid             112  157  pretend  # /proc/self/autogroup numbers the machine's sessions
    syslog             103  116  refuse   # reports of crashes, of addresses that a program chooses
    # advice about memory: RANDOM and WILLNEED; COLD, PAGEOUT and COLLAPSE, which older kernels do not know
    madvise  28  233  arg2 & 0xFFFFFFFD == 1: pretend, arg2 & 0xFFFFFFFE == 20: invalid, arg2 == 25: invalid, allow
    # flags that read only pages in memory, or leave none there: RWF_NOWAIT and RWF_DONTCACHE
    preadv2            327  286  arg5 & 0x88 != 0: unsupported, allow
    # These are commands of file systems: a file's place on the disk depends on earlier files that are gone, ext4 tells
    # which of a file's extents it knows and forgets them on demand, and attributes can be set without a right to write.
    # A command has its file system in the second byte: all (f, v, X), Btrfs, F2FS and bcachefs.
    ioctl   16  29  arg1 & 0xFF00 == 0x6600: unsupported, arg1 & 0xFF00 == 0x7600: unsupported, \
                    arg1 & 0xFF00 == 0x5800: unsupported, arg1 & 0xFF00 == 0x9400: unsupported, \
                    arg1 & 0xFF00 == 0xF500: unsupported, arg1 & 0xFF00 == 0xBC00: unsupported, allow
    # SOL_SOCKET loses SO_COOKIE and SO_NETNS_COOKIE, which the kernel counts up, SO_PEERPIDFD and SO_PASSPIDFD.
    getsockopt          55  209  arg1 != 1: allow, arg2 == 57: refuse, arg2 == 71: refuse, arg2 == 77: refuse, allow
    setsockopt          54  208  arg1 != 1: allow, arg2 == 76: refuse, allow
    # AF_UNIX alone, since not every family is held by a namespace of networks (AF_VSOCK leads to the host of a virtual
    # machine), and of its kinds SOCK_STREAM and SOCK_SEQPACKET: even a pair's socket could send datagrams out
    socket              41  198  arg0 != 1: foreign, arg1 & 0xF == 1: allow, arg1 & 0xF == 5: allow, refuse
    socketpair          53  199  arg0 != 1: foreign, arg1 & 0xF == 1: allow, arg1 & 0xF == 5: allow, refuse
""")
BESIDE_LANDLOCK = _table("""
    connect             42  203  refuse
    shmat               30  196  refuse   # memory, queues and locks that all processes of the user share
    shmctl              31  195  refuse
    msgsnd              69  189  refuse
    msgrcv              70  188  refuse
    msgctl              71  187  refuse
    semop               65  193  refuse
    semtimedop         220  192  refuse
    semctl              66  191  refuse
    mq_open            240  180  refuse
    mq_unlink          241  181  refuse
    chown               92    -  refuse   # changes of owner and attributes, which Landlock does not cover
    lchown              94    -  refuse
    fchown              93   55  refuse
    fchownat           260   54  refuse
    file_setattr       469  469  refuse
    setxattr           188    5  refuse
    lsetxattr          189    6  refuse
    fsetxattr          190    7  refuse
    setxattrat         463  463  refuse
    removexattr        197   14  refuse
    lremovexattr       198   15  refuse
    fremovexattr       199   16  refuse
    removexattrat      466  466  refuse
    chmod               90    -  pretend
    fchmod              91   52  pretend
    fchmodat           268   53  pretend
    fchmodat2          452  452  pretend
    prlimit64          302  261  arg0 == 0: allow, refuse    # 0 is the calling process
    ioprio_set         251   30  arg0 != 1: pretend, arg1 == 0: allow, pretend  # IOPRIO_WHO_PROCESS
    # No times mean now; without a path the file is open, so that it exists.
    utime              132    -  arg1 == 0: refuse, pretend
    utimes             235    -  arg1 == 0: refuse, pretend
    futimesat          261    -  arg1 == 0: pretend, arg2 == 0: refuse, pretend
    utimensat          280   88  arg1 == 0: pretend, arg2 == 0: refuse, pretend
""")


def program(machine: str, *, namespaces: bool) -> list[Instruction]:
    """Return the filter for a machine's architecture, for a sandbox with its own namespaces (bubblewrap) or without."""
    architecture, column = ARCHITECTURES[machine]
    program = [
        *((LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL)),  # 32-bit: other numbers
        *((LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE)),
    ]
    for table in (EVERYWHERE, {} if namespaces else BESIDE_LANDLOCK):
        for numbers, steps in table.values():
            number = numbers[column]
            program += [] if number is None else [(EQUAL, 0, len(steps), number), *steps]
    return [*program, (RETURN, 0, 0, ALLOW)]


def available() -> bool:
    """Return whether filters work here: a kernel that supports them answers EFAULT to a null filter."""
    has_table = sys.platform == "linux" and sys.maxsize > 1 << 32 and os.uname().machine in ARCHITECTURES
    return has_table and _set_filter(None) != 0 and ctypes.get_errno() == errno.EFAULT


def install() -> int:
    """Apply Landlock's filter to this process, which must have no_new_privs set; return 0, or -1 with errno set."""
    code = _code(namespaces=False)
    held = ctypes.create_string_buffer(code, len(code))
    return _set_filter(struct.pack("@HP", len(code) // INSTRUCTION_BYTES, ctypes.addressof(held)))  # struct sock_fprog


def log_in() -> None:
    """Log this process in as its user, unless somebody has.

    The first login of a process, or of one that it starts, takes the machine's next number and makes it readable.
    Another login would need a capability.
    """
    with suppress(OSError):  # most kernels count logins, but not all
        login = os.open("/proc/self/loginuid", os.O_RDWR | os.O_CLOEXEC)
        if os.pread(login, len(NOBODY), 0) == NOBODY:
            os.pwrite(login, b"%d" % os.getuid(), 0)


def blur() -> None:
    """Begin new shares of the inode numbers of pipes, sockets and shared memory on each core, and mix freed sockets.

    The kernel deals INODES of them to a core at a time. As each gets a share now and is at its beginning, a process
    cannot tell how far it was in the last one, nor when it got that; it can tell how many shares all cores were dealt.
    The kernel gives the memory of a socket to the next one on that core, and /proc/self/net/unix shows each socket's
    place: without this, the order in which a process closed its sockets would be told.
    """
    children = []
    for core in os.sched_getaffinity(0):
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {core})
            sockets = [one for _ in range(MIXED_PAIRS) for one in socket.socketpair()]
            for one in sorted(sockets, key=lambda _: os.urandom(4)):
                one.close()
            for make in (os.pipe, lambda: (os.memfd_create(""),)):
                left = -os.fstat(make()[0]).st_ino % INODES + 1
                for _ in range(left):
                    for made in make():
                        os.close(made)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def main(command: list[str]) -> None:
    """Become bubblewrap with the filter in a pipe, which it reads and closes; exit with a sentence if it is missing."""
    log_in()
    blur()
    there, here = os.pipe()
    os.write(here, _code(namespaces=True))  # much less than a pipe holds, so this does not block
    os.set_inheritable(there, True)
    try:
        os.execv(command[0], [command[0], "--seccomp", str(there), *command[1:]])
    except OSError as error:
        sys.exit(f"seccomp: {command[0]} cannot be started: {error.strerror}")


def _code(*, namespaces: bool) -> bytes:
    """Return this machine's filter as the kernel reads it."""
    steps = program(os.uname().machine, namespaces=namespaces)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _set_filter(filter_: bytes | None) -> int:
    answer: int = LIBC.prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), filter_)
    return answer
