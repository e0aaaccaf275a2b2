"""Every sandbox that works here denies a process the same places, and gives it the same tools."""

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nights import PROJECT, Quiet, bubblewrap, git, kernels_own, usable
from samples import NIGHT

from agent.experiment import Ending
from agent.runs.runner import Runner
from agent.sandbox import places, seccomp
from agent.sandbox.environment import sandbox_env
from agent.sandbox.places import LIMITS
from agent.sandbox.sandboxes import Sandbox
from agent.sandbox.supervisor import limits_of_machine

CANARY = "canary-5f2c"

# Each says what it could do, and nothing of what was refused.
READ = """
import os, sys
for path in sys.argv[1:]:
    try: print(path, sorted(os.listdir(path)) if os.path.isdir(path) else open(path, 'rb').read(64))
    except OSError: pass
"""
WRITE = """
import os, sys
for path in sys.argv[1:]:
    for deed in (lambda: open(path, 'a').write('x'), lambda: os.truncate(path, 0), lambda: os.unlink(path),
                 lambda: os.rename('own', path), lambda: os.link('own', path), lambda: os.symlink('own', path),
                 lambda: os.makedirs(os.path.dirname(path), exist_ok=True) or open(path, 'w').write('x')):
        open('own', 'w').close()
        try: deed()
        except OSError: pass
"""
ENVIRONMENTS = """
import glob, os
print(dict(os.environ))
for path in glob.glob('/proc/*/environ'):
    try: print(path, open(path, errors='replace').read())
    except OSError: pass
"""
CONNECT = """
import socket, sys
kind, address = sys.argv[1:]
address = {'tcp': ('127.0.0.1', address.isdecimal() and int(address)), 'abstract': '\\0' + address}.get(kind, address)
try:
    socket.socket(socket.AF_INET if kind == 'tcp' else socket.AF_UNIX).connect(address)
    print('connected')
except OSError: pass
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    open('daemon', 'w').write('up')
    time.sleep(60)
os.wait()
while not os.path.exists('daemon') or not os.path.getsize('daemon'): time.sleep(0.01)
"""
LAWFUL = """
import ctypes, os, subprocess, tempfile
import mlx.core as mx, numpy as np
assert mx.array(np.ones(3)).sum().item() == 3
with tempfile.NamedTemporaryFile() as file: print(os.path.dirname(file.name))
subprocess.run(['cc', '-x', 'c', '-shared', '-o', 'seven.so', '-'], input=b'int seven() { return 7; }', check=True)
print(ctypes.CDLL('./seven.so').seven())
"""


def skip_if_open(sandbox: Sandbox, gap: str) -> None:
    if gap in sandbox.uncovered:
        pytest.skip(f"{sandbox.name} says that it does not cover {gap}")


@pytest.fixture(params=[bubblewrap, kernels_own], ids=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return usable(request.param())


@dataclass(frozen=True)
class World:
    """A run's surroundings: the user's home and repository, with canaries in both, and its night."""

    root: Path
    runner: Runner

    @property
    def folder(self) -> Path:
        return self.runner.run_folder(1, 0)

    @property
    def private(self) -> list[Path]:
        """Return files that no run may see."""
        names = ("home/key", "user/train_mlx.py", "user/.git/config", "user/experiments/nights/t/journal.sqlite")
        return [*(self.root / name for name in names), self.runner.weights(0, 0), self.runner.losses(1, 0)]

    def run(self, code: str, *arguments: object, sandboxed: bool = True, trains: bool = True) -> str:
        """Run a Python program in the sandbox or outside, and return its output."""
        command = [sys.executable, "-c", code, *map(str, arguments)]
        if sandboxed:
            command = self.runner.sandbox.wrap(command, self.runner.view(self.folder, trains=trains))
        env = sandbox_env(self.folder, self.runner.night.data)
        done = subprocess.run(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        return done.stdout


@pytest.fixture
def world(sandbox: Sandbox, tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "home").mkdir()
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    git(tmp_path / "user", "init", "-q")
    night = dataclasses.replace(NIGHT, data=str(tiny_data))
    folder = tmp_path / "user" / "experiments" / "nights" / "t"
    world = World(tmp_path, Runner(night, folder, sandbox, limits_of_machine(), lambda: False, Quiet().progressed))
    world.runner.lay_out(world.folder, "print('hello')\n")
    for path in world.private:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    return world


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Start another process of the user, with a key in its environment."""
    env = {"API_KEY": CANARY, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=env) as process:
        yield process
        process.kill()


# ---- files -----------------------------------------------------------------------------------------------------------


def test_home_repository_and_other_runs_cannot_be_read(world):
    closed = [world.root / "home", world.root / "user" / ".git", world.runner.run_folder(0, 0)]
    assert len(world.run(READ, *world.private, *closed, sandboxed=False).splitlines()) == len(world.private) + len(
        closed
    )
    assert world.run(READ, *world.private, *closed) == ""
    assert world.run(READ, *(f"/proc/self/root{path}" for path in world.private)) == ""
    (world.folder / "link").symlink_to(world.private[0])
    assert world.run(READ, "link") == ""


def test_nothing_outside_its_folder_can_be_written(world):
    """It tries files made for this test, and new files in places that matter."""
    packages = next(Path(entry) for entry in sys.path if entry.endswith("-packages"))
    folders = [
        world.root,
        world.root / "user",
        Path(world.runner.night.data),
        packages,
        PROJECT,
        Path("/usr"),
        Path("/"),
    ]
    new = [folder / f"{CANARY}.pth" for folder in folders]
    world.run(WRITE, *world.private, *new)
    left = [path for path in new if path.exists()]
    for path in left:
        path.unlink()
    assert left == []
    assert [path.read_text() for path in world.private] == [CANARY] * len(world.private)


def test_the_training_split_is_seen_and_no_other(world):
    files = sorted(Path(world.runner.night.data).iterdir())
    said = world.run(READ, *files)
    seen = [path.name.partition(".")[0] for path in files if f"{path} b" in said]
    assert {path.name.partition(".")[0] for path in files} >= {"validation", "holdout"}
    assert set(seen) == {"manifest", "token_bytes", "tokenizer", "train"}


def test_no_text_at_all_is_seen_where_a_model_is_scored(world, monkeypatch):
    data = Path(world.runner.night.data)
    files = sorted(data.iterdir())
    for system in (places.SYSTEM, (*places.SYSTEM, str(data.parent))):  # a corpus that lies below /usr, say
        monkeypatch.setattr(places, "SYSTEM", system)
        said = world.run(READ, *files, trains=False)
        seen = {path.name.partition(".")[0] for path in files if f"{path} b" in said}
        assert seen == {"manifest", "token_bytes", "tokenizer"}


# ---- processes and the network ---------------------------------------------------------------------------------------


def test_no_key_is_in_any_environment(world, stranger, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    said = world.run(ENVIRONMENTS)
    assert "NIGHTSHIFT_DATA" in said
    assert CANARY not in said


def test_no_tcp_server_of_the_machine_answers(world):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert world.run(CONNECT, "tcp", port, sandboxed=False) == "connected\n"
        assert world.run(CONNECT, "tcp", port) == ""


FAMILIES = """
import errno, socket
for family in range(64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        for make in (socket.socket, socket.socketpair):
            try: print(socket.AddressFamily(make(family, kind)[0].family).name)
            except TypeError: print(socket.AddressFamily(make(family, kind).family).name)
            except OSError as error: print(errno.errorcode[error.errno])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac's sockets are denied their addresses, not refused")
def test_sockets_are_of_the_family_that_stays_inside(world):
    """A namespace of networks does not hold AF_VSOCK, which leads from a virtual machine to its host."""
    if not seccomp.available():
        pytest.skip("nothing here filters system calls")
    assert {"AF_INET", "AF_UNIX"} <= set(world.run(FAMILIES, sandboxed=False).split())
    assert set(world.run(FAMILIES).split()) == {"AF_UNIX", "EAFNOSUPPORT", "EPERM"}


COUNTING = (
    *("stat", "vmstat", "interrupts", "softirqs", "diskstats", "loadavg", "uptime", "slabinfo", "timer_list", "keys"),
    *("key-users", "zoneinfo", "buddyinfo", "pagetypeinfo", "kpagecount", "kpageflags", "pressure/cpu", "locks"),
    *("schedstat", "swaps", "fs/ext4/vda/mb_groups", "sys/fs/dentry-state", "sys/fs/file-nr", "sys/fs/inode-nr"),
)


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac has no such files")
def test_no_counter_of_the_kernel_carries_numbers_from_one_run_to_the_next(world):
    devices = [path for name in ("block/*/stat", "net/*/statistics/*") for path in Path("/sys/class").glob(name)]
    groups = [path for path in Path("/sys/fs/cgroup").rglob("*usage*") if path.is_file()][:50]
    nodes = [*Path("/sys/devices/system/node").glob("node*/vmstat")]
    counting = [
        path for path in (*(Path("/proc") / name for name in COUNTING), *devices, *groups, *nodes) if path.exists()
    ]
    assert len(counting) > 10
    assert world.run(READ, *counting) == ""
    assert world.run(READ, *(f"/proc/self/root{path}" for path in counting)) == ""


MAKES_DISKS = Path("/sys/class/zram-control")  # reading a file in there adds a disk and returns its number
OPEN = """
import os, stat, sys
try: print(stat.S_ISREG(os.stat(os.open(sys.argv[1], os.O_RDONLY)).st_mode))
except OSError: print(False)
"""


@pytest.mark.skipif(not MAKES_DISKS.is_dir(), reason="this kernel makes no disks in memory")
def test_nothing_makes_a_disk_by_reading(world):
    """It opens the file without reading: each successful read leaves a disk in the machine's memory."""
    assert world.run(OPEN, MAKES_DISKS / "hot_add") == "False\n"


FACTS = """
import os, sys
words = (open('/proc/' + name).read() for name in ('meminfo', 'cpuinfo'))
print(os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf('SC_PHYS_PAGES'), *(word.split()[0] for word in words))
print(*(open(path).read() for path in sys.argv[1:] if os.path.exists(path)))
print([sorted(os.listdir(f'/sys/{path}')) for path in ('class', 'devices/system/cpu', 'devices/system/node/node0')])
"""


def test_what_honest_programs_ask_about_the_machine_is_told(world):
    facts = world.run(FACTS, *LIMITS)
    assert facts == world.run(FACTS, *LIMITS, sandboxed=False)
    assert "MemTotal: processor" in facts


def test_no_unix_socket_of_the_machine_answers(world, monkeypatch):
    monkeypatch.chdir(world.root)  # the whole path may be longer than that of a socket
    name = f"nightshift-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        for listener, address in ((server, "socket"), (abstract, f"\0{name}")):
            listener.bind(address)
            listener.listen()
        for kind, address in (("unix", os.path.relpath(world.root / "socket", world.folder)), ("abstract", name)):
            assert world.run(CONNECT, kind, address, sandboxed=False) == "connected\n"
            assert world.run(CONNECT, kind, address) == ""


def test_other_processes_cannot_be_ended(world, stranger):
    skip_if_open(world.runner.sandbox, "signals to the user's other processes")
    said = world.run("import os, sys\nfor pid in sys.argv[1:]: os.kill(int(pid), 9)", stranger.pid, os.getpid())
    assert "Error" in said
    assert stranger.poll() is None


PROBE = """
import glob, os, sys
for path in glob.glob(f'/proc/{sys.argv[1]}/*'):
    try: print(path, os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(64))
    except OSError: pass
"""


def test_of_another_process_nothing_can_be_read(world, stranger):
    assert "sleep" in world.run(PROBE, stranger.pid, sandboxed=False)
    assert world.run(PROBE, stranger.pid) == ""
    assert world.run(READ, *(f"/proc/{stranger.pid}/{name}" for name in ("cmdline", "stat", "fd", "task"))) == ""
    assert world.run(READ, f"/proc/{os.getpid()}/cmdline", f"/proc/{os.getppid()}/cmdline") == ""


def test_a_daemon_does_not_survive(world):
    outcome = world.runner.call([sys.executable, "-c", DAEMON], world.folder, limit_s=60)
    assert outcome.ending is Ending.FINISHED, outcome
    assert (world.folder / "daemon").read_text() == "up"
    assert [process for process in psutil.process_iter(["cmdline"]) if DAEMON in (process.info["cmdline"] or [])] == []


def test_mlx_numpy_and_the_compiler_are_there(world):
    assert world.run(LAWFUL).splitlines() == [f"{world.folder / 'tmp'}", "7"]
