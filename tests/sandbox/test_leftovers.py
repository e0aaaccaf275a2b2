"""One sandbox can leave no message for a later one in the kernel: it cannot be written, or not be read."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from commands import wait_until
from nights import bubblewrap, kernels_own, usable

from agent.sandbox import seccomp
from agent.sandbox.environment import sandbox_env
from agent.sandbox.places import View
from agent.sandbox.sandboxes import Sandbox

pytestmark = pytest.mark.skipif(not seccomp.available(), reason="nothing here filters system calls")

PAGES = 64
COLUMN = seccomp.ARCHITECTURES.get(os.uname().machine, (0, 0))[1]
PRELUDE = f"""
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NUMBERS = { {name: numbers[COLUMN] for name, (numbers, _) in seccomp.EVERYWHERE.items()} }

def call(name, *arguments):
    ctypes.set_errno(0)
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return libc.syscall(ctypes.c_long(NUMBERS[name]), *words), ctypes.get_errno()
"""


class Surroundings:
    """A sandbox, its working folder, and a large file outside that it may read."""

    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox, self.folder, self.file = sandbox, root / "run", root / "large"
        (self.folder / "tmp").mkdir(parents=True)
        self.file.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
        os.sync()  # the kernel puts no page out that was not written

    def run(self, code: str, *, sandboxed: bool = True) -> str:
        """Run a Python program in the sandbox and return its last line."""
        (self.folder / "script.py").write_text(PRELUDE + code)
        command = [sys.executable, "script.py", str(self.file)]
        if sandboxed:
            command = self.sandbox.wrap(command, View(self.folder, (self.file,)))
        env = sandbox_env(self.folder, data="")
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=60)
        return (done.stderr or done.stdout).strip().rpartition("\n")[2]


@pytest.fixture(params=[bubblewrap, kernels_own], ids=["bubblewrap", "landlock"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Surroundings:
    return Surroundings(usable(request.param()), tmp_path)


def pages_in_memory(path: Path) -> int:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages, start = (ctypes.c_ubyte * PAGES)(), ctypes.c_ubyte.from_buffer(mapped)
        answer = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), pages)
        del start
    assert answer == 0
    return sum(page & 1 for page in pages)


# ---- the kernel's memory of files ------------------------------------------------------------------------------------

PUT_OUT = """
with open(sys.argv[1], "rb") as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(mapped[::4096])
    for advice in (20, 21, 25):
        try: mapped.madvise(advice)
        except OSError: pass
print("done")
"""
BRING_IN = """
with open(sys.argv[1], "rb") as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    libc.readahead(file.fileno(), ctypes.c_long(0), ctypes.c_size_t(1 << 20))
    mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).madvise(mmap.MADV_WILLNEED)
print("done")
"""


def test_no_page_of_a_file_is_put_out_of_memory_on_demand(place):
    place.file.read_bytes()
    assert pages_in_memory(place.file) == PAGES
    assert place.run(PUT_OUT) == "done"
    assert pages_in_memory(place.file) == PAGES
    place.run(PUT_OUT, sandboxed=False)
    if pages_in_memory(place.file) == PAGES:
        pytest.skip("files here are in memory alone")


def test_none_is_brought_in_without_being_read(place):
    place.run(PUT_OUT, sandboxed=False)
    if pages_in_memory(place.file) != 0:
        pytest.skip("files here are in memory alone")
    assert place.run(BRING_IN) == "done"
    assert pages_in_memory(place.file) == 0
    place.run(BRING_IN, sandboxed=False)
    wait_until(lambda: pages_in_memory(place.file) == PAGES)  # the disk brings them in meanwhile


ASK = """
told = (ctypes.c_ubyte * 1024)()
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
    start = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapped))
    answers = [call("mincore", start, len(mapped), told)[1], call("cachestat", file.fileno(), told, told, 0)[1]]
    for flags in (os.RWF_NOWAIT, 0x80):
        try: answers.append(os.preadv(file.fileno(), [bytearray(4096)], 0, flags))
        except OSError as error: answers.append(error.errno)
print(answers, os.preadv(os.open(sys.argv[1], 0), [bytearray(4096)], 0, 0))
"""


def test_which_pages_are_in_memory_is_not_told(place):
    assert place.run(ASK) == "[1, 1, 95, 95] 4096"
    assert place.run(ASK, sandboxed=False).startswith("[0, ")


# ---- keyrings and queues ---------------------------------------------------------------------------------------------

LEAVE_IN_A_KEYRING = """
SESSION, USER = -3, -4
print([call("add_key", b"user", b"nightshift-test", b"note", 4, ring) for ring in (SESSION, USER)])
"""
FORGET = """
for ring in (-3, -4):
    key, _ = call("keyctl", 10, ring, b"user", b"nightshift-test", 0)
    call("keyctl", 9, key, ring)
print("found" if key > 0 else "gone")
"""


def test_no_note_is_left_in_a_keyring(place):
    assert place.run(LEAVE_IN_A_KEYRING) == "[(-1, 1), (-1, 1)]"
    search = "call('keyctl', 10, -3, b'user', b'nightshift-test', 0), call('request_key', b'user', b'nightshift', 0, 0)"
    assert place.run(f"print([{search}])") == "[(-1, 1), (-1, 1)]"
    if "-1" in place.run(LEAVE_IN_A_KEYRING, sandboxed=False):
        pytest.skip("nobody may use keyrings here")
    assert place.run(FORGET, sandboxed=False) == "found"


KEEP_IN_THE_KERNEL = """
made = [call(name, 0, count, 0o1600)[1] for name, count in (("shmget", 1 << 20), ("semget", 9), ("msgget", 0o1600))]
print(*made, call("vmsplice", 1, 0, 0, 0)[1])
"""


def test_no_memory_is_kept_in_segments_queues_and_pipes_of_the_kernel(place):
    """A segment needs no process, and a page in a pipe holds the huge page around it."""
    assert place.run(KEEP_IN_THE_KERNEL) == "1 1 1 1"


# ---- numbers that count for the whole machine ------------------------------------------------------------------------

LOG_IN = """
def log_in():
    try: open("/proc/self/loginuid", "w").write(str(os.getuid()))
    except OSError: pass
for _ in range(20):
    child = os.fork()
    if child == 0:
        log_in()
        os._exit(0)
    os.waitpid(child, 0)
log_in()
print(open("/proc/self/sessionid").read())
"""
BEGIN_SESSIONS = """
for _ in range(20):
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(0)
    os.waitpid(child, 0)
print("".join(filter(str.isdigit, open("/proc/self/autogroup").read().partition(" ")[0])) or 0)
"""


@pytest.mark.parametrize("deed", [LOG_IN, BEGIN_SESSIONS], ids=["logins", "sessions"])
def test_what_one_sandbox_begins_is_not_counted_in_the_number_of_the_next(place, deed):
    if not Path("/proc/self/sessionid").exists() or not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel numbers neither")
    # a process that is in no group of the scheduler's reads an empty file, which tells nothing
    first, *numbers = [int(place.run(deed)) for _ in range(4)]
    # programs beside this one begin sessions, too, but hardly three times as many as these
    assert min(later - before for before, later in pairwise([first, *numbers])) < 20


COUNT_INODES = """
def inode(make):
    made = make()
    number = os.fstat(made[0]).st_ino
    for one in made: os.close(one)
    return number % 1024
ways = (os.pipe, lambda: (os.memfd_create(""),))
print(*map(inode, ways), file=sys.stderr)
for make in ways:  # the next sandbox would begin at the same number, each time
    while inode(make) != 1000: pass
"""


def test_where_a_core_is_in_its_share_of_inode_numbers_is_not_told(place):
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        of_pipes, of_memory = zip(*(map(int, place.run(COUNT_INODES).split()) for _ in range(6)), strict=True)
    finally:
        os.sched_setaffinity(0, cores)
    # the first of a share, or a few more where other processes of this core made some
    assert sorted(of_pipes)[3] < 500
    assert sorted(of_memory)[3] < 500


# ---- the filter of bubblewrap ----------------------------------------------------------------------------------------

only_bubblewrap = pytest.mark.parametrize("place", [bubblewrap], indirect=True, ids=["bubblewrap"])
FILTERED = """
print([open(f"/proc/{pid}/status").read().partition("Seccomp:")[2].split()[0] for pid in (1, "self")],
      sorted(os.listdir("/proc/self/fd")))
"""


@only_bubblewrap
def test_the_filter_itself_is_not_in_the_sandbox(place):
    assert place.run(FILTERED) == "['2', '2'] ['0', '1', '2', '3']"  # the last is the folder that is listed


# ---- the kernel's memory of sockets ----------------------------------------------------------------------------------

# Prints the places of sockets in the order in which they were opened, and closes them in that order.
SOCKETS = """
import json, socket
sockets = [one for _ in range(150) for one in socket.socketpair()]
lines = [line.split() for line in open("/proc/self/net/unix").read().splitlines()[1:]]
place = {int(line[6]): line[0] for line in lines}
print(json.dumps([place[os.fstat(one.fileno()).st_ino] for one in sockets]))
for one in sockets: one.close()
"""


def test_no_sandbox_can_tell_in_which_order_another_has_closed_its_sockets(place):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # the kernel gives a socket's memory to the next one on its core
    try:
        closed, opened = (json.loads(place.run(SOCKETS)) for _ in range(2))
    finally:
        os.sched_setaffinity(0, cores)
    assert len(closed) == len(opened) == 300
    last_first, first_first = set(pairwise(reversed(closed))), set(pairwise(closed))
    pairs = list(pairwise(opened))
    assert sum(pair in last_first for pair in pairs) - sum(pair in first_first for pair in pairs) < len(pairs) / 4
