"""In a control group the kernel enforces the limits of a process tree, and all of it ends."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.sandbox import cgroup
from agent.sandbox.cgroup import Group, group

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    print(os.getpid(), flush=True)
    time.sleep(60)
os.wait()
"""


def groups_can_be_made() -> bool:
    with group(1 << 30, 100) as made:
        return made is not None


real = pytest.mark.skipif(not groups_can_be_made(), reason="this user may make no control groups here")


@pytest.fixture
def small() -> Iterator[Group]:
    with group(memory_bytes=64 << 20, processes=8) as made:
        assert made is not None
        yield made


def run(within: Group, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, preexec_fn=within.join, capture_output=True, text=True, timeout=30)


def start_daemon(within: Group) -> int:
    """Start a daemon, which leaves its parent and session; return its process id."""
    parent = subprocess.Popen([sys.executable, "-c", DAEMON], preexec_fn=within.join, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        return int(parent.stdout.readline())


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


# ---- real groups -----------------------------------------------------------------------------------------------------


@real
def test_beyond_its_memory_the_kernel_ends_it(small):
    assert run(small, "x = bytearray(16 << 20)").returncode == 0
    assert not small.out_of_memory()
    assert run(small, "x = bytearray(256 << 20)").returncode == -9
    assert small.out_of_memory()
    assert small.at_its_limit()


@real
def test_what_its_processes_fill_is_told_and_no_pages_of_files(small, tmp_path):
    (tmp_path / "corpus").write_bytes(bytes(32 << 20))
    code = "x = bytearray(16 << 20); f = open('corpus', 'rb'); f.read(); print('up', flush=True); input()"
    command = [sys.executable, "-c", code.replace("f.read()", "any(f.read(1 << 20) is None for _ in range(32))")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, preexec_fn=small.join, cwd=tmp_path, **pipes) as process:
        process.stdout.readline()
        deadline = time.monotonic() + 5
        while not 16 << 20 < (small.filled_bytes() or 0) < 40 << 20:  # the kernel adds up now and then
            assert time.monotonic() < deadline, small.filled_bytes()
            time.sleep(0.05)
        process.kill()


@real
def test_memory_is_that_of_all_processes_together(small):
    code = "import os, time\nfor _ in range(4): os.fork() or (bytearray(40 << 20), time.sleep(0.1), os._exit(0))\n"
    run(small, code + "for _ in range(4): os.wait()")
    assert small.out_of_memory()


@real
def test_beyond_its_processes_nothing_starts(small):
    done = run(small, "import os\nfor n in range(99): os.fork() or os._exit(0)")  # nobody waits for them: they count
    assert "BlockingIOError" in done.stderr
    assert not small.out_of_memory()


@real
def test_killing_reaches_a_daemon(small):
    daemon = start_daemon(small)
    small.kill()
    assert ends(daemon)


@real
def test_killing_is_faster_than_a_bomb(small):
    code = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    bomb = subprocess.Popen([sys.executable, "-c", code], preexec_fn=small.join)
    time.sleep(0.1)
    start = time.monotonic()
    small.kill()
    assert bomb.wait(5) == -9
    assert time.monotonic() - start < 1


@real
def test_at_the_end_the_group_is_gone_with_all_that_was_in_it():
    with group(64 << 20, 8) as made:
        assert made is not None
        daemon = start_daemon(made)
        assert made.folder.is_dir()
    assert ends(daemon)
    assert not made.folder.exists()


@real
def test_groups_of_one_process_do_not_meet():
    with group(64 << 20, 8) as one, group(64 << 20, 8) as other:
        assert one is not None
        assert other is not None
        assert one.folder != other.folder


@real
def test_what_a_killed_harness_left_is_swept():
    code = """
import os; from agent.sandbox.cgroup import group
with group(64 << 20, 8) as made:
    print(made.folder, flush=True)
    os.kill(os.getpid(), 9)
"""
    left = subprocess.run([sys.executable, "-c", code], cwd=Path(cgroup.__file__).parents[2], capture_output=True)
    folder = Path(os.fsdecode(left.stdout.strip()))
    assert folder.is_dir()
    with group(64 << 20, 8):
        pass
    assert not folder.exists()


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/unified/cgroup.procs", os.W_OK), reason="no tree of version 2 to use")
def test_version_2_kills_a_whole_group_at_once():
    folder = Path("/sys/fs/cgroup/unified") / f"nightshift-{os.getpid()}-kill"
    folder.mkdir()
    try:
        made = Group(folder)
        daemon = start_daemon(made)
        made.kill()
        assert ends(daemon)
    finally:
        cgroup._remove(folder)
    assert not folder.exists()


# ---- version 2, as files ---------------------------------------------------------------------------------------------


class Tree:
    """Imitate a version 2 tree in a plain folder, where a group's files have to be deleted by the test."""

    def __init__(self, root: Path, path: str = "/user/session", controllers: str = "cpu memory pids") -> None:
        self.root, self.home = root / "tree", root / "tree" / path.lstrip("/")
        self.home.mkdir(parents=True)
        (self.home / "cgroup.controllers").write_text(controllers)
        (self.home / "cgroup.subtree_control").write_text("")
        self.membership = root / "membership"
        self.membership.write_text(f"0::{path}\n")

    def group(self) -> AbstractContextManager[Group | None]:
        return group(1 << 30, 100, tree=self.root, membership=self.membership)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "tree" in request.fixturenames:
        monkeypatch.setattr(cgroup, "REMOVE_S", 0.0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_version_2_gets_one_folder_with_both_limits(tree):
    with tree.group() as made:
        assert made.folder.parent == tree.home
        assert re.fullmatch(rf"nightshift-{os.getpid()}-\d+", made.folder.name)
        names = ("memory.max", "memory.swap.max", "pids.max")
        assert [(made.folder / name).read_text() for name in names] == [str(1 << 30), "0", "100"]
        assert (tree.home / "cgroup.subtree_control").read_text() == "+memory +pids"
        made.join()
        assert (made.folder / "cgroup.procs").read_text() == "0"


def test_version_2_counts_what_the_kernel_killed(tree):
    with tree.group() as made:
        (made.folder / "memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 0\n")
        assert not made.out_of_memory()
        (made.folder / "memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 2\n")
        assert made.out_of_memory()
        assert made.at_its_limit()
        (made.folder / "memory.events").write_text("low 0\nmax 0\noom 0\noom_kill 1\n")  # of the machine's memory
        assert made.out_of_memory()
        assert not made.at_its_limit()


def test_version_2_tells_what_its_processes_fill(tree):
    with tree.group() as made:
        assert made.filled_bytes() is None
        (made.folder / "memory.stat").write_text("anon 700\nfile 5000\nshmem 40\n")
        assert made.filled_bytes() == 740


def test_an_empty_group_of_a_dead_process_is_swept_and_no_other(tree):
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"nightshift-{dead.pid}-0", f"nightshift-{os.getpid()}-x", "nightshift-other-1", "session-2"):
        (tree.home / name).mkdir()
    (tree.home / f"nightshift-{dead.pid}-1" / "busy").mkdir(parents=True)
    with tree.group():
        left = {folder.name for folder in tree.home.iterdir() if folder.is_dir()}
    assert f"nightshift-{dead.pid}-0" not in left
    assert left > {f"nightshift-{dead.pid}-1", f"nightshift-{os.getpid()}-x", "nightshift-other-1", "session-2"}


def test_without_the_controllers_there_is_no_group(tmp_path):
    with Tree(tmp_path, controllers="cpu pids").group() as made:
        assert made is None


def test_where_the_controllers_cannot_be_handed_down_there_is_no_group(tree):
    (tree.home / "cgroup.subtree_control").unlink()
    (tree.home / "cgroup.subtree_control").mkdir()  # any write fails, as it does where processes live in the group
    with tree.group() as made:
        assert made is None


def test_without_any_tree_there_is_no_group(tmp_path):
    for membership in ("", "0::/\n", "4:memory:/a\n8:pids:/b\n"):
        (tmp_path / "membership").write_text(membership)
        with group(1 << 30, 100, tree=tmp_path / "none", membership=tmp_path / "membership") as made:
            assert made is None
    with group(1 << 30, 100, tree=tmp_path, membership=tmp_path / "nowhere") as made:
        assert made is None


@pytest.mark.parametrize("path", ["/docker/0123", "/../other"])
def test_a_path_of_the_machine_means_the_containers_root(tmp_path, path):
    tree = Tree(tmp_path, path="/")
    tree.membership.write_text(f"0::{path}\n")
    with tree.group() as made:
        assert made.folder.parent == tree.root


def test_an_error_inside_is_not_swallowed(tree):
    with pytest.raises(OSError, match="mine"), tree.group():
        raise OSError("mine")
