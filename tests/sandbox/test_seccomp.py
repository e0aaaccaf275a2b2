"""Calls that the filter refuses work without it, and calls that training needs work with it."""

import errno
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sandbox import seccomp

pytestmark = pytest.mark.skipif(not seccomp.available(), reason="nothing here filters system calls")

PIDFD_OPEN = 434
MACHINES = tuple(seccomp.ARCHITECTURES)
ROWS = {name: numbers for name, (numbers, _) in (seccomp.EVERYWHERE | seccomp.BESIDE_LANDLOCK).items()}
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
PRELUDE = f"""
import ctypes, os, socket, sys
sys.path.insert(0, {str(Path(seccomp.__file__).parents[2])!r})
from agent.sandbox import seccomp
libc = ctypes.CDLL(None, use_errno=True)
column = seccomp.ARCHITECTURES[os.uname().machine][1]
table = seccomp.EVERYWHERE | seccomp.BESIDE_LANDLOCK
numbers = {{name: row[column] for name, (row, _) in table.items() if row[column] is not None}}

def call(number, *arguments):
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0 else 0
"""
INSTALL = "assert libc.prctl(38, 1, 0, 0, 0) == 0 and seccomp.install() == 0\n"


def run(code: str, *arguments: object) -> str:
    """Run a Python program under the filter and return its last line."""
    command = [sys.executable, "-c", PRELUDE + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return (done.stderr or done.stdout).strip().rpartition("\n")[2]


def free(deed: str, *arguments: object) -> bool:
    return run(f"{deed}; print('done')", *arguments) == "done"


def refused(deed: str, *arguments: object) -> bool:
    return run(f"{INSTALL}{deed}", *arguments).startswith(f"PermissionError: [Errno {errno.EPERM}]")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[socket.socket]:
    """Start a service that receives datagrams, as the system's log does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(0.2)
        yield server


# ---- what it refuses -------------------------------------------------------------------------------------------------


def test_each_call_of_the_table_is_refused():
    code = """
for error, answer in ((1, seccomp.REFUSE), (0, seccomp.PRETEND)):
    always = [name for name, (_, steps) in table.items() if steps == [(seccomp.RETURN, 0, 0, answer)]]
    print({name for name in always if name in numbers and call(numbers[name], -1, 0, 0, 0, 0) != error}, end=' ')
"""
    assert run(INSTALL + code) == "set() set()"


def test_no_socket_tells_how_many_there_were_before():
    deed = "socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, 57, 8)"
    assert free(deed)
    assert refused(deed)


def test_no_file_tells_where_on_the_disk_it_is(tmp_path):
    """Its place depends on how much was written before, also of what is gone."""
    deed = "import fcntl; print(fcntl.ioctl(os.open(sys.argv[1], 0), 0xC020660B, bytes(8) + b'\\xff' * 8 + bytes(16)))"
    (tmp_path / "file").write_bytes(b"x")
    if not free(deed, tmp_path / "file"):
        pytest.skip("this file system tells nobody")
    assert run(INSTALL + deed, tmp_path / "file").startswith(f"OSError: [Errno {errno.EOPNOTSUPP}]")


HINT = "struct.pack('Q', 2)"  # a hint that the written data will soon be deleted


def test_a_file_keeps_no_hint_that_another_process_can_read(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    deed = f"import fcntl, struct; fcntl.fcntl(os.open(sys.argv[1], 0), 1036, {HINT})"
    assert free(deed, tmp_path / "file")
    assert refused(deed, tmp_path / "file")


@pytest.mark.parametrize("command", [0x6628, 0x6612, 0x80086601], ids=["forget extents", "learn extents", "attributes"])
def test_no_file_system_is_told_what_to_remember_of_a_file(tmp_path, command):
    (tmp_path / "file").write_bytes(b"x")
    deed = f"import fcntl; fcntl.ioctl(os.open(sys.argv[1], 0), {command}, bytes(8))"
    if not free(deed, tmp_path / "file"):
        pytest.skip("this file system does not know the command")
    assert run(INSTALL + deed, tmp_path / "file").startswith(f"OSError: [Errno {errno.EOPNOTSUPP}]")


def test_there_is_no_memory_that_the_watch_cannot_see():
    assert run(f"{INSTALL}print(call(numbers['memfd_secret'], 0))") == str(errno.ENOSYS)


@pytest.mark.parametrize(("kind", "answer"), [(0, 0), (1, errno.EOPNOTSUPP), (3, errno.EOPNOTSUPP)])
def test_no_file_has_room_that_its_size_leaves_out(tmp_path, kind, answer):
    (tmp_path / "log").write_bytes(b"x")
    deed = f"print(call(numbers['fallocate'], os.open(sys.argv[1], os.O_RDWR), {kind}, 0, 1 << 20))"
    assert run(INSTALL + deed, tmp_path / "log") == str(answer)


@pytest.mark.parametrize("wish", ["F_NOTIFY, fcntl.DN_ACCESS", "F_SETLEASE, fcntl.F_RDLCK"])
def test_nothing_tells_which_files_other_programs_use(wish):
    assert refused(f"import fcntl; fcntl.fcntl(os.open('/usr/lib', os.O_RDONLY), fcntl.{wish})")


def test_no_descriptor_of_a_process_tells_how_many_there_were_and_where_it_is():
    deeds = {
        "print(call(numbers['kcmp'], os.getpid(), os.getpid(), 0, 0, 1))": errno.ENOSYS,
        f"print(call({PIDFD_OPEN}, os.getpid(), 0))": errno.ENOSYS,
        "print(call(numbers['clone'], 0x1000 | 17, 0, 0, 0, 0))": errno.EPERM,  # CLONE_PIDFD
    }
    for deed, error in deeds.items():
        assert run(INSTALL + deed) == str(error)
    for deed in ("getsockopt(socket.SOL_SOCKET, 77, 4)", "setsockopt(socket.SOL_SOCKET, 76, 1)"):
        assert refused(f"socket.socketpair()[0].{deed}")


def test_a_session_that_begins_has_no_effect_and_seems_to_succeed():
    """Python reports where it cannot start a program in a session of its own."""
    code = "import subprocess; print(os.getsid(0) == os.getpid(), subprocess.call(['true'], start_new_session=True))"
    assert run(f"os.setsid(); {code}") == "True 0"
    assert run(f"{INSTALL}os.setsid(); {code}") == "False 0"


@pytest.mark.parametrize("maker", ["socket.socket({0})", "socket.socketpair({0})[0]"])
def test_no_datagram_reaches_a_service(log, maker):
    made = maker.format("socket.AF_UNIX, socket.SOCK_DGRAM")
    deed = f"{made}.sendto(b'out', sys.argv[1])"
    assert free(deed, log.getsockname())
    assert log.recv(9) == b"out"
    assert refused(deed, log.getsockname())
    with pytest.raises(TimeoutError):
        log.recv(9)


def test_a_socket_that_was_open_before_cannot_be_connected(log):
    deed = f"s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); {INSTALL.strip()}; s.connect(sys.argv[1])"
    assert run(deed, log.getsockname()).startswith("PermissionError")


def test_no_namespace_is_opened():
    assert run(INSTALL + "print(call(numbers['clone'], 0x10000000 | 17, 0, 0, 0, 0))") == str(errno.EPERM)
    assert run(INSTALL + "print(call(numbers['clone3'], 0, 0))") == str(errno.ENOSYS)


def test_no_thread_has_descriptors_that_its_process_does_not_show():
    """A thread may have a table of its own from its start, or by closing files in a copy."""
    assert run(INSTALL + "print(call(numbers['clone'], 0x10900, 0, 0, 0, 0))") == str(errno.EPERM)
    assert run(INSTALL + "print(call(numbers['close_range'], 9, 9, 2))") == str(errno.EPERM)
    assert run(INSTALL + "import threading; threading.Thread(target=print, args=['runs']).start()") == "runs"
    assert run(INSTALL + "print(call(numbers['close_range'], 9, 9, 0))") == "0"


def test_a_process_stays_open_to_the_watch_and_ends_with_its_parent():
    deed = "libc.prctl(1, 9, 0, 0, 0); {}libc.prctl(4, 0, 0, 0, 0); libc.prctl(1, 0, 0, 0, 0); death = ctypes.c_int()"
    ask = "libc.prctl(2, ctypes.byref(death), 0, 0, 0); print(libc.prctl(3, 0, 0, 0, 0), death.value)"
    assert run(f"{deed.format('')}; {ask}") == "0 0"
    assert run(f"{deed.format(INSTALL.strip() + '; ')}; {ask}") == "1 9"


def test_limits_are_its_own_to_set():
    own = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    others = "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE)"
    assert free(own)
    assert free(INSTALL + own)
    assert free(others)
    assert refused(others)


OTHERS = """
print([os.getpriority(os.PRIO_PROCESS, int(sys.argv[1])), os.sched_getscheduler(int(sys.argv[1])),
       len(os.sched_getaffinity(int(sys.argv[1]))) > 1])
"""


def test_no_priority_and_no_core_is_its_own_to_set():
    """All processes keep their settings, though the kernel reports a change."""
    deed = """
pid, idle = int(sys.argv[1]), os.sched_param(0)
os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + 3)
os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19)
os.sched_setscheduler(pid, os.SCHED_IDLE, idle)
os.sched_setaffinity(pid, {min(os.sched_getaffinity(pid))})
"""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        before = run(OTHERS, other.pid)
        assert run(INSTALL + deed + OTHERS, other.pid) == before
        run(INSTALL + deed.replace("pid, idle = int(sys.argv[1])", "pid, idle = 0") + OTHERS, other.pid)
        assert run(OTHERS, other.pid) == before
        assert run(deed + OTHERS, other.pid) == "[19, 5, False]"
        other.kill()
    assert run(INSTALL + deed.replace("int(sys.argv[1])", "0") + OTHERS, 0) == run(OTHERS, 0)


def test_the_numbers_of_another_table_are_refused():
    assert run(INSTALL + "print(call((1 << 30) + 39))") == str(errno.EPERM)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_32_bit_call_ends_the_program(tmp_path):
    if run("print(os.uname().machine)") != "x86_64":
        pytest.skip("32-bit calls have another way in here")
    (tmp_path / "old.c").write_text('int main(void) { int a = 20; __asm__ volatile("int $0x80" : "+a"(a)); }')
    subprocess.run(["cc", "old.c", "-o", "old"], cwd=tmp_path, check=True)
    code = "import subprocess; print(subprocess.run([sys.argv[1]]).returncode)"
    if run(code, tmp_path / "old") != "0":
        pytest.skip("this kernel takes no 32-bit calls")
    assert run(INSTALL + code, tmp_path / "old") == str(-signal.SIGSYS)


def test_children_inherit_it_and_cannot_take_it_off():
    child = "import socket, subprocess; subprocess.run([sys.executable, '-c', 'import socket; socket.socket()'])"
    assert run(INSTALL + child).startswith(f"OSError: [Errno {errno.EAFNOSUPPORT}]")
    assert run(INSTALL + "print(libc.prctl(22, 0, 0, 0, 0), ctypes.get_errno())") == f"-1 {errno.EINVAL}"


# ---- what it lets through --------------------------------------------------------------------------------------------


def test_cuda_gets_the_socket_without_which_it_does_not_start():
    deed = "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(f'\\0cuda-{os.getpid()}'); s.listen()"
    assert free(INSTALL + deed)


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine):
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not here")
    kernel = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    column = seccomp.ARCHITECTURES[machine][1]
    ours = {name: row[column] for name, row in ROWS.items()}
    newer = {"setxattrat", "removexattrat", "file_setattr", "fchmodat2", "cachestat"} - kernel.keys()
    older = ours.keys() - newer
    assert {name: kernel.get(name) for name in older} == {name: ours[name] for name in older}
