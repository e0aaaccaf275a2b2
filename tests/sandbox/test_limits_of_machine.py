"""A run beyond its limits ends at once with its whole tree, and the log says why."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from nights import mounted

from agent.experiment import Ending
from agent.files import remove
from agent.sandbox.environment import scrubbed_env
from agent.sandbox.process import Outcome, supervise
from agent.sandbox.supervisor import GB, ResourceLimits, memory

MB = 1 << 20
PLENTY = ResourceLimits(
    memory_bytes=GB, spare_memory_bytes=0, spare_disk_bytes=0, folder_bytes=64 * MB, folder_files=500, processes=100
)


def run(folder: Path, *command: str, **given: int) -> Outcome:
    """Run one command under limits of which it can reach the given ones alone."""
    limits = dataclasses.replace(PLENTY, **given)
    return supervise(
        list(command),
        folder,
        env=scrubbed_env(""),
        limit_s=60,
        stopped=lambda: False,
        limits=limits,
    )


def reason(folder: Path, *command: str, is_shortage: bool = False, **given: int) -> str:
    """Run a command that would last a minute, and return why it was ended."""
    outcome = run(folder, *command, **given)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXCEEDED, None), outcome
    assert (outcome.why_invalid is not None) == is_shortage
    assert outcome.wall_s < 30
    return outcome.last_lines.splitlines()[-1]


def shell(deed: str) -> tuple[str, ...]:
    return ("sh", "-c", f"{deed}; sleep 60")


def test_a_run_below_its_caps_is_left_alone(tmp_path):
    deed = "mkdir a; touch $(seq 300); head -c 8000000 /dev/zero > big; for i in 1 2 3; do sleep 0.4 & done; wait"
    outcome = run(tmp_path, "sh", "-c", f"{deed}; echo done")
    assert (outcome.ending, outcome.exit_code, outcome.last_lines) == (Ending.FINISHED, 0, "done")


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_the_memory_of_all_its_processes_counts(tmp_path):
    deed = "import os, time\nfor _ in range(4): os.fork() or (globals().update(x=bytearray(100 << 20)), time.sleep(60))"
    assert "out of memory" in reason(tmp_path, sys.executable, "-c", f"{deed}\ntime.sleep(60)", memory_bytes=256 * MB)


def test_the_machine_keeps_a_reserve_of_memory(tmp_path):
    said = reason(tmp_path, "sleep", "60", is_shortage=True, spare_memory_bytes=1 << 60)
    assert said.startswith("out of memory: this run used 0.00 GB, the machine had ")
    assert said.endswith(f" GB left, {2**30}.00 GB are its reserve")


PIECEWISE = "for at in range(0, SIZE, 1 << 20): x[at : at + (1 << 20)] = bytes(1 << 20)"
MEMFD = "f = os.memfd_create('x'); os.write(f, bytes(PIECE))"
FILLS = {
    "own": "x = bytearray(SIZE)",
    "shared": f"x = mmap.mmap(-1, SIZE)\n{PIECEWISE}",
    "memfd": f"f = os.memfd_create('x'); os.ftruncate(f, SIZE); x = mmap.mmap(f, SIZE)\n{PIECEWISE}",
    "memfd that is open": f"for _ in range(20): {MEMFD}",
    "page tables": """
x = mmap.mmap(-1, SIZE << 9, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
for at in range(0, SIZE << 9, 2 << 20): x[at]""",
    "after its first thread": """
def fill(): time.sleep(1.5); x = bytearray(SIZE); time.sleep(60)
threading.Thread(target=fill).start(); ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)""",
    "sockets": """
x = [socket.socketpair() for _ in range(400)]
for end in (end for pair in x for end in pair):
    end.setblocking(False)
    try:
        while True: end.send(bytes(1 << 16))
    except BlockingIOError: pass""",
    # No piece may leave a visible trace.
    "mapped memfd": f"""
for _ in range(20): {MEMFD}; ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 1, 1, f, 0); os.close(f)""",
    "memfd on its way": f"""
for _ in range(20): {MEMFD}; x = socket.socketpair(); kept += x; socket.send_fds(x[0], [b'x'], [f]); os.close(f)""",
    "put out": """
for _ in range(20): x = mmap.mmap(-1, PIECE); kept += [x]; x.write(bytes(PIECE)); x.madvise(mmap.MADV_DONTNEED)""",
}
KINDS = FILLS if sys.platform == "linux" else ["own"]


def filled_by(code: str, folder: Path) -> str:
    """Return why a run that fills memory was ended; another program's shared memory may count for it as a shortage."""
    before = "import ctypes, mmap, os, socket, threading, time\nSIZE, PIECE, kept = 400 << 20, 20 << 20, []"
    outcome = run(folder, sys.executable, "-c", f"{before}\n{code}\ntime.sleep(60)", memory_bytes=256 * MB)
    assert outcome.ending is Ending.EXCEEDED, outcome
    assert outcome.wall_s < 30
    return outcome.last_lines.splitlines()[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_memory_is_a_place_to_hide(tmp_path, kind):
    assert filled_by(FILLS[kind], tmp_path).startswith("out of memory: it used ")


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac has none of these")
def test_memory_that_another_program_hides_ends_no_run(tmp_path):
    hoard = f"import os, time\nPIECE = 20 << 20\ntime.sleep(1)\nfor _ in range(20): {MEMFD}\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hoard]) as other:
        outcome = run(tmp_path, "sh", "-c", "sleep 3; echo unharmed", memory_bytes=256 * MB)
        other.kill()
    assert outcome.last_lines == "unharmed"


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="this kernel ranks no processes")
def test_the_kernel_goes_on_ending_the_run_first_where_memory_runs_out(tmp_path):
    take_back = "file = open('/proc/self/oom_score_adj', 'r+'); file.write('999'); file.close(); time.sleep(3)"
    code = f"import time\n{take_back}\nprint(open('/proc/self/oom_score_adj').read().strip())"
    assert run(tmp_path, sys.executable, "-c", code).last_lines == "1000"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_limits_of_a_process_are_not_its_own_to_raise(tmp_path):
    kinds = "(r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE, r.RLIMIT_NPROC)"
    code = f"import resource as r; print([len(set(r.getrlimit(kind))) for kind in {kinds}])"
    assert run(tmp_path, sys.executable, "-c", code).last_lines == "[1, 1, 1, 1]"


# ---- processes -------------------------------------------------------------------------------------------------------


def test_a_fork_bomb_is_dead_within_seconds(tmp_path):
    bomb = """
import mmap, os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
count = mmap.mmap(-1, 8)
while True:
    if int.from_bytes(count[:8], 'little') < 300:
        count[:8] = (int.from_bytes(count[:8], 'little') + 1).to_bytes(8, 'little')
        os.fork()
    else: signal.pause()
"""
    start_s = time.monotonic()
    assert reason(tmp_path, sys.executable, "-c", bomb).endswith(", 100 are allowed")
    assert time.monotonic() - start_s < 30
    assert [process for process in psutil.process_iter(["cmdline"]) if bomb in (process.info["cmdline"] or [])] == []


def test_processes_that_nothing_reaps_are_counted(tmp_path):
    code = "import os, time\nfor _ in range(200): os.fork() or os._exit(0)\ntime.sleep(60)"
    assert reason(tmp_path, sys.executable, "-c", code, threads=150).startswith("too many dead processes: ")


# ---- its folder and the disk -----------------------------------------------------------------------------------------


LONG = "d" * 200
HOARDS = {
    "mkdir a b; touch $(seq 300); cd b; touch $(seq 300)": "more than the 500 files that are allowed",
    "head -c 70000000 /dev/zero > big": "more than the 0.1 GB that are allowed",
    f"for i in $(seq 30); do mkdir {LONG}; cd {LONG}; done": "a part that cannot be measured (File name too long)",
}


@pytest.mark.parametrize("deed", HOARDS)
def test_a_folder_beyond_its_limits_is_measured_and_can_be_removed(tmp_path, deed):
    folder = tmp_path / "run"
    folder.mkdir()
    assert reason(folder, *shell(deed)) == f"its folder holds {HOARDS[deed]}"
    remove(folder)  # pytest could not
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac shows no descriptors")
def test_deleted_files_count_while_they_are_open(tmp_path):
    write = "f = os.open('gone', os.O_CREAT | os.O_RDWR); os.unlink('gone'); os.write(f, bytes(40 << 20))"
    code = f"import os, time\nfor _ in range(2): {write}\ntime.sleep(60)"
    said = reason(tmp_path, sys.executable, "-c", code)
    assert said == "its folder, with deleted files that are open, holds more than the 0.1 GB that are allowed"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_deleted_files_that_are_mapped_count_by_what_the_disk_has_lost(tmp_path):
    write = "f = os.open('gone', os.O_CREAT | os.O_RDWR); os.unlink('gone'); os.write(f, bytes(20 << 20))"
    hide = "ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 1, 1, f, 0); os.close(f)"
    code = f"import ctypes, os, time\nfor _ in range(5): {write}; {hide}\ntime.sleep(60)"
    with mounted(tmp_path / "disk", "size=200m") as disk:
        said = reason(disk, sys.executable, "-c", code, is_shortage=True)
    assert said.endswith("of the disk went while it ran, which it may hold in deleted files; 0.1 GB are allowed")


def test_a_single_file_ends_at_its_limit(tmp_path):
    outcome = run(tmp_path, sys.executable, "-c", "open('big', 'wb').write(bytes(2 << 20))", file_bytes=MB)
    assert outcome.ending is Ending.CRASHED
    assert outcome.last_lines.endswith("OSError: [Errno 27] File too large")
    assert (tmp_path / "big").stat().st_size == MB


def test_the_disk_keeps_a_reserve(tmp_path):
    said = reason(tmp_path, "sleep", "60", is_shortage=True, spare_disk_bytes=1 << 60)
    assert said.startswith("disk full: ")
    assert said.endswith(f" GB are left, {2**30}.00 GB are the night's reserve")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_script_that_fails_on_a_full_disk_before_the_watch_has_looked_is_no_crash(tmp_path):
    with mounted(tmp_path / "disk", "size=8m") as disk:
        (disk / "work").mkdir()
        (disk / "another program's").write_bytes(bytes(7 * MB))
        outcome = run(disk / "work", "sh", "-c", "head -c 4000000 /dev/zero > big", spare_disk_bytes=2 * MB)
        assert outcome.ending is Ending.EXCEEDED
        assert outcome.why_invalid is not None


# ---- the machine's own -----------------------------------------------------------------------------------------------


def test_in_a_container_its_memory_is_all_there_is(tmp_path):
    (tmp_path / "memory.max").write_text(f"{500 * MB}\n")
    (tmp_path / "memory.current").write_text(f"{400 * MB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\nactive_file {20 * MB}\ninactive_file {30 * MB}\n")
    assert memory(tmp_path) == (500 * MB, 150 * MB)  # memory that files take can be freed
    for limit in ("max\n", f"{2**63 - 4096}\n"):
        (tmp_path / "memory.max").write_text(limit)
        assert memory(tmp_path)[0] == psutil.virtual_memory().total
