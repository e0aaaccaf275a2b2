"""Under Landlock a command reads and writes the given paths only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.sandbox import landlock
from agent.sandbox.sandboxes import UNDER_RULES

pytestmark = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")

PROGRAM = Path(landlock.__file__)
IMPORT = f"import sys; sys.path.insert(0, {str(PROGRAM.parents[2])!r}); from agent.sandbox import landlock"
SYSTEM = ["/usr", "/bin", "/lib", "/lib64", "/etc", sys.prefix, sys.base_prefix]
DEVICES = ["/dev/null", "/dev/urandom"]


class Sandbox:
    """A writable folder inside a folder with a secret."""

    def __init__(self, outside: Path) -> None:
        self.outside, self.inside, self.secret = outside, outside / "inside", outside / "secret"
        self.inside.mkdir()
        self.secret.write_text("key")
        self.rules = {"read": SYSTEM, "write": [str(self.inside)], "devices": DEVICES}

    def run(self, code: str, *arguments: object) -> str:
        """Run a Python program in the sandbox; return its last line, which names the exception after a crash."""
        launcher = [*UNDER_RULES, json.dumps(self.rules)]
        command = [*launcher, sys.executable, "-I", "-c", code, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.inside, capture_output=True, text=True, timeout=60)
        return (done.stderr or done.stdout).strip().rpartition("\n")[2]

    def refuses(self, deed: str, *arguments: object) -> bool:
        return self.run(f"import os, socket, sys; {deed}", *arguments).startswith("PermissionError")


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_times_and_permissions_stay_though_the_kernel_says_that_they_changed(sandbox):
    deed = "os.chmod(sys.argv[1], 0o604); os.utime(sys.argv[1], (1, 1)); shutil.copystat('/etc', sys.argv[1])"
    before = sandbox.secret.stat()
    assert sandbox.run(f"import os, shutil, sys; {deed}; print('done')", sandbox.secret) == "done"
    assert sandbox.secret.stat() == before


def test_a_process_keeps_the_folder_that_tells_of_it(sandbox):
    sandbox.rules["write"] += ["/proc/self"]
    code = """
import os
open("/proc/self/comm", "w").write("named")
held = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 6) if os.path.islink(f"/proc/self/fd/{fd}")]
print(open("/proc/self/comm").read().strip(), held == [f"/proc/{os.getpid()}"])
"""
    assert sandbox.run(code) == "named True"
    assert sandbox.refuses("open(f'/proc/{os.getppid()}/oom_score_adj', 'w')")


def test_no_device_can_be_made(sandbox):
    assert sandbox.refuses("os.mknod('disk', 0o60600, os.makedev(8, 0))")


# ---- processes and the network ---------------------------------------------------------------------------------------


def test_not_even_root_keeps_a_capability_or_can_gain_one(sandbox):
    sandbox.rules["read"] = [*SYSTEM, "/proc"]
    code = "import json; print(json.dumps([line.split() for line in open('/proc/self/status')]))"
    status = {name: words for name, *words in json.loads(sandbox.run(code))}
    assert status["NoNewPrivs:"] == ["1"]
    held = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] + ["CapBnd:"] * (
        os.geteuid() == 0
    )  # the last is root's to lower
    assert [status[kind] for kind in held] == [["0" * 16]] * len(held)


# ---- what it is for --------------------------------------------------------------------------------------------------


def test_programs_threads_and_processes_work_inside(sandbox):
    (sandbox.inside / "script.py").write_text("""
import multiprocessing, os, socket, subprocess, threading
from concurrent.futures import ThreadPoolExecutor
import psutil

def work(pipe):
    pipe.send(sum(range(10)))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there,))
    process.start()
    near, far = socket.socketpair()
    far.send(b"through")
    with ThreadPoolExecutor(4) as pool:
        squares = list(pool.map(lambda x: x * x, range(4)))
    said = subprocess.run("echo hello | cat", shell=True, capture_output=True, text=True).stdout.strip()
    print(here.recv(), near.recv(9), squares, said, psutil.Process().memory_info().rss > 0)
    process.join()
""")
    sandbox.rules["write"] += ["/proc/self"]
    assert sandbox.run("import runpy; runpy.run_path('script.py', run_name='__main__')") == (
        "45 b'through' [0, 1, 4, 9] hello True"
    )


@pytest.mark.parametrize("what", ["Lock()", "Queue()", "Pool(1)", "Manager().list()"])
def test_what_multiprocessing_misses_is_refused_not_hung(sandbox, what):
    code = f"import multiprocessing as m, os; os.environ['TMPDIR'] = os.getcwd(); m.get_context('fork').{what}"
    assert sandbox.run(code).startswith(("PermissionError", "EOFError"))  # the latter where a socket's path is too long


# ---- older kernels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, landlock.abi() + 1))
def test_a_sandbox_of_an_older_kernel_closes_what_it_can(sandbox, version):
    inner = "import os, sys; open('own', 'w').close(); os.rename('own', 'moved'); open(sys.argv[1])"
    code = f"""
{IMPORT}
landlock.abi = lambda: {version}
landlock.main({sandbox.rules!r}, [sys.executable, "-c", {inner!r}, {str(sandbox.secret)!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=sandbox.inside, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("PermissionError")
    assert (sandbox.inside / "moved").exists()
